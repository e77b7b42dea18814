"""Put the folders that `tilewright calibrate` wrote into the package: coefficients, tables and one index.

    python tools/merge_coefficients.py fitted/gemm fitted/moe fitted/moe_glm5 [--into DIR]

`--into` is the folder that gets `coefficients/` and `tables/`, by default src/tilewright/data. The source of the rows
is stated once, in the index's notice. See export_kernel_tables.py for the whole way.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import msgspec

from tilewright.cost.kernel_models import INDEX_NAME, Index, IndexEntry

DATA = Path(__file__).parent.parent / "src" / "tilewright" / "data"


def main(folders: list[Path], data: Path) -> None:
    entries: list[IndexEntry] = []
    notices: list[str] = []
    # All is read before anything is replaced: a missing folder must not cost the coefficients that are there.
    for folder in folders:
        index = msgspec.json.decode((folder / INDEX_NAME).read_bytes(), type=Index)
        entries += [msgspec.structs.replace(entry, source="") for entry in index.entries]
        notices.append(index.notice)
    for name in ("coefficients", "tables"):
        shutil.rmtree(data / name, ignore_errors=True)
        (data / name).mkdir(parents=True)
    for folder in folders:
        for path in sorted(folder.glob("*.json.gz")):
            shutil.copy(path, data / "coefficients")
        for path in sorted(folder.glob("*.table.gz")):
            shutil.copy(path, data / "tables")
    entries.sort(key=lambda entry: (entry.op, entry.gpu, entry.backend, entry.dtype))
    merged = Index(entries=entries, notice=notices[-1])
    text = msgspec.json.format(msgspec.json.encode(merged), indent=1) + b"\n"
    (data / "coefficients" / INDEX_NAME).write_bytes(text)
    print(f"{len(entries)} kernels in {data}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--into", type=Path, default=DATA)
    given = parser.parse_args()
    main(given.folders, given.into)
