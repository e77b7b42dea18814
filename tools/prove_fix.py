"""Compile FlashInfer's MoE launcher before and after the patch of `tilewright fix`, and keep what the compiler says.

    python tools/prove_fix.py ROOT types               # every tactic's bytes and stages: about a minute
    python tools/prove_fix.py ROOT kernel SUBSTRING... # whole kernels, before and after: minutes each

ROOT is a FlashInfer folder or wheel; what comes out is merged into `src/tilewright/data/fix_proof.json`, under the
digests of the two launchers, the CUTLASS tree and the compiler. Needs nvcc, no GPU; nothing is run on one.
"""

from __future__ import annotations

import datetime
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tilewright.collectives.tree import open_tree
from tilewright.libraries.flashinfer.fix_compile import TARGET, compile_kernel, compile_types, laid_out
from tilewright.libraries.flashinfer.fix_evidence import PREFIX, key_of
from tilewright.libraries.flashinfer.fix_patch import make_patch
from tilewright.libraries.flashinfer.layout import find_layout
from tilewright.libraries.flashinfer.tactics import read_report
from tilewright.probe.cache import write_atomically
from tilewright.probe.compiler import find_nvcc

DATA = Path(__file__).parents[1] / "src" / "tilewright" / "data" / "fix_proof.json"


def main(root: str, what: str, wanted: list[str]) -> None:
    compiler = find_nvcc()
    with open_tree(root) as tree:
        report, layout = read_report(tree), find_layout(tree)
        patch = make_patch(layout)
        key = {**key_of(layout, patch), "nvcc": compiler.version, "target": TARGET}
        names = [tactic.name for tactic in report.tactics]
        with laid_out(layout) as place:
            if what == "types":
                before = compile_types(compiler, place, patch.before, names)
                after = compile_types(compiler, place, patch.after, names)
                found: dict[str, Any] = {
                    name.removeprefix(PREFIX): [
                        before.rows[name].smem_bytes, before.rows[name].stages,
                        after.rows[name].smem_bytes, after.rows[name].stages,
                    ]
                    for name in names
                }  # fmt: skip
                _merge(key, layout.version, report.cutlass, {"types": found})
                return
            for name in [name for name in names if any(part in name for part in wanted)]:
                kernels = [asdict(compile_kernel(compiler, place, text, name)) for text in (patch.before, patch.after)]
                entry = {name.removeprefix(PREFIX): kernels}
                _merge(key, layout.version, report.cutlass, {"kernels": entry})
                print(name, kernels, flush=True)


def _merge(key: dict[str, str], version: str, cutlass: str, found: dict[str, Any]) -> None:
    proofs: list[dict[str, Any]] = json.loads(DATA.read_text())["proofs"]
    entry = next((item for item in proofs if all(item[name] == value for name, value in key.items())), None)
    if entry is None:
        entry = {**key, "library": [], "cutlass": cutlass, "types": {}, "kernels": {}}
        proofs.append(entry)
    entry["library"] = sorted({*entry["library"], version})
    entry["date"] = datetime.datetime.now(datetime.UTC).date().isoformat()
    for part, values in found.items():
        entry[part] |= values
    proofs.sort(key=lambda item: item["library"])
    write_atomically(DATA, _text(proofs).encode())


def _text(proofs: list[dict[str, Any]]) -> str:
    """One tactic a line."""
    blocks: list[str] = []
    for item in proofs:
        head = json.dumps({key: value for key, value in item.items() if key not in ("types", "kernels")}, indent=1)
        parts = [
            f' "{part}": {{\n'
            + ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in item[part].items())
            + "\n }"
            for part in ("types", "kernels")
        ]
        blocks.append(head[:-2] + ",\n" + ",\n".join(parts) + "\n}")
    return '{"proofs": [\n' + ",\n".join(blocks) + "\n]}\n"


def _lines(values: dict[str, Any]) -> str:
    return ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in values.items())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
