"""What was found, as the files that vLLM and SGLang read: names, places and keys exactly theirs.

vLLM (model_executor/layers/fused_moe/fused_moe.py, get_config_file_name and get_moe_configs) looks for one file in
$VLLM_TUNED_CONFIG_FOLDER; SGLang (srt/layers/moe/moe_runner/triton_utils/fused_moe_triton_config.py) for one file a
GEMM in $SGLANG_MOE_CONFIG_DIR/configs/triton_<version>. Both take, of the numbers of tokens in it, the nearest. What
was found for our own kernel is a file of its own form (`kernels/tuned.py`).
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from tilewright.errors import InputError, shown
from tilewright.kernels import tuned
from tilewright.report.write_file import check_new, write_new
from tilewright.tune.layer import Layer, no_nvfp4_file
from tilewright.tune.space import Config
from tilewright.tune.trials import Trial

Engine = Literal["vllm", "sglang"]
Format = Literal["vllm", "sglang", "tilewright"]
ENGINES: Final[tuple[Engine, ...]] = ("vllm", "sglang")
OURS: Final = "tilewright"
"""The format of the files that our own NVFP4 kernel reads."""
VARIABLE: Final[dict[Engine, str]] = {"vllm": "VLLM_TUNED_CONFIG_FOLDER", "sglang": "SGLANG_MOE_CONFIG_DIR"}
KEYS: Final = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")
_RELEASE: Final = re.compile(r"\d+(?:\.\d+)*")
_PLAIN: Final = re.compile(r"[^/\\\0\n]{1,120}")


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """One file. `seen_by` names an engine of this machine whose own lookup was followed and reads it, or ""."""

    engine: Format
    path: str
    gemm: Literal["both", "up", "down"]
    tokens: list[int]
    seen_by: str = ""


def check_format(layer: Layer, name: str) -> Format:
    """`name`, if files of it are read for layers of this format.

    Raises:
        InputError: none are.
    """
    if name == OURS:
        if layer.dtype != "nvfp4":
            msg = f"--format {OURS} is what tilewright's NVFP4 kernel reads; tune it with --kernel ours."
            raise InputError("format", msg)
        return OURS
    for engine in ENGINES:
        if name == engine:
            if layer.dtype == "nvfp4":
                raise no_nvfp4_file("format", engine, f"--format {OURS} writes the file that our own kernel reads")
            return engine
    raise InputError("format", f"--format {shown(name)} is none; it is {', '.join((*ENGINES, OURS))}.")


def device_part(engine: Engine, device: str) -> str:
    """The GPU's name as `engine` writes it into file names. vLLM: runs of spaces and slashes become `_`, and every GPU
    of the H200 family is NVIDIA_H200; SGLang: each space becomes `_`."""
    name = device.replace(" ", "_") if engine == "sglang" else re.sub(r"[\s/]+", "_", device)
    if not _PLAIN.fullmatch(name):
        raise InputError("device", f"The GPU's name {shown(device)} cannot be part of a file name.")
    return "NVIDIA_H200" if engine == "vllm" and "H200" in name.split("_") else name


def file_name(engine: Engine, layer: Layer, device: str, *, down: bool = False) -> str:
    """The file name that `engine` looks for on the GPU that torch calls `device`."""
    selector = f",dtype={layer.selector}" if layer.selector else ""
    block = ""
    if layer.block_shape:
        space = "" if engine == "vllm" else " "  # vLLM takes the space out, SGLang keeps Python's
        block = f",block_shape=[{layer.block_shape[0]},{space}{layer.block_shape[1]}]"
    tail = "_down" if down else ""
    return f"E={layer.experts},N={layer.inter},device_name={device_part(engine, device)}{selector}{block}{tail}.json"


def triton_folder(version: str) -> str:
    """SGLang's folder for a version of Triton. Only numbers: another folder beside it would stop SGLang's search, which
    reads every part of every such name as a number."""
    found = _RELEASE.match(version)
    if found is None:
        raise InputError("triton", f"Triton {shown(version)} is no version like 3.6.0; give --triton.")
    return f"triton_{found[0].replace('.', '_')}"


def _entry(config: Config) -> dict[str, int]:
    return {key: config[key] for key in KEYS}


def table_bytes(configs: Mapping[int, Config], triton: str | None) -> bytes:
    """A file's content: numbers of tokens as text, ascending; `triton_version` first where it is given (vLLM writes it;
    SGLang, which reads every key as a number, must not have it)."""
    table: dict[str, Any] = {"triton_version": triton} if triton else {}
    table |= {str(tokens): _entry(configs[tokens]) for tokens in sorted(configs)}
    return msgspec.json.format(msgspec.json.encode(table), indent=4) + b"\n"


def pair_of(ranked: Sequence[Trial]) -> tuple[Config, Config] | None:
    """(up's config, down's) that are together fastest with an equal BLOCK_SIZE_M: SGLang aligns the rows once, by up's,
    and overrides down's (fused_moe_triton_kernels.py)."""
    best: tuple[float, Config, Config] | None = None
    complete = [trial for trial in ranked if trial.up_s is not None and trial.down_s is not None]
    for rows in {trial.config["BLOCK_SIZE_M"] for trial in complete}:
        those = [trial for trial in complete if trial.config["BLOCK_SIZE_M"] == rows]
        up = min(those, key=lambda trial: trial.up_s or 0.0)
        down = min(those, key=lambda trial: trial.down_s or 0.0)
        total = (up.up_s or 0.0) + (down.down_s or 0.0)
        if best is None or total < best[0]:
            best = (total, up.config, down.config)
    return None if best is None else (best[1], best[2])


def _our_file(layer: Layer, device: str) -> str:
    return tuned.file_name(device, layer.hidden, layer.inter, layer.experts, layer.topk)


def _our_table(layer: Layer, device: str, found: Mapping[int, Sequence[Trial]], source: str) -> bytes:
    """Our own file: the winner of each number of tokens, and its time."""
    best = {tokens: ranked[0] for tokens, ranked in found.items() if ranked}
    return tuned.encoded(
        tuned.TunedBuilds(
            device=device, hidden=layer.hidden, inter=layer.inter, experts=layer.experts, topk=layer.topk,
            source=source, builds={tokens: trial.config for tokens, trial in best.items()},
            times_us={tokens: round(trial.time_s * 1e6, 3) for tokens, trial in best.items() if trial.time_s},
        )
    )  # fmt: skip


def planned(
    engine: Format, layer: Layer, device: str, version: str, found: Mapping[int, Sequence[Trial]]
) -> list[tuple[str, Literal["both", "up", "down"], bytes]]:
    """(path below the folder, which GEMM, content) of every file. `found`: tokens -> trials, best first. `version`: of
    Triton; for our own kernel the digest of its text."""
    if engine == OURS:
        return [(_our_file(layer, device), "both", _our_table(layer, device, found, version))] if found else []
    if engine == "vllm":
        best = {tokens: ranked[0].config for tokens, ranked in found.items() if ranked}
        return [(file_name(engine, layer, device), "both", table_bytes(best, version))] if best else []
    pairs = {tokens: pair for tokens, ranked in found.items() if (pair := pair_of(ranked)) is not None}
    if not pairs:
        return []
    folder = f"configs/{triton_folder(version)}"
    ups = {tokens: pair[0] for tokens, pair in pairs.items()}
    downs = {tokens: pair[1] for tokens, pair in pairs.items()}
    return [
        (f"{folder}/{file_name(engine, layer, device)}", "up", table_bytes(ups, None)),
        (f"{folder}/{file_name(engine, layer, device, down=True)}", "down", table_bytes(downs, None)),
    ]


def targets(engine: Format, layer: Layer, device: str, version: str, out: str) -> list[Path]:
    """The files that an export would write, before there is anything to write."""
    if engine == OURS:
        return [Path(out) / _our_file(layer, device)]
    names = [file_name(engine, layer, device)]
    if engine == "vllm":
        return [Path(out) / names[0]]
    names.append(file_name(engine, layer, device, down=True))
    return [Path(out) / "configs" / triton_folder(version) / name for name in names]


def check_targets(paths: Sequence[Path], out: str, *, force: bool) -> None:
    """Refuse before anything is measured what could not be written afterwards; the folders are made.

    Raises:
        InputError: `out` is no folder or cannot be written into, or one of the files exists and `force` is not set.
    """
    try:
        if not out or "\0" in out or (Path(out).exists() and not Path(out).is_dir()):
            raise InputError("out", f"--out {shown(out)} is no folder; give one, it is made where it is missing.")
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            check_new(str(path), force=force)
            with tempfile.TemporaryFile(dir=path.parent):
                pass
    except OSError as error:
        msg = f"--out {shown(out)} cannot be written: {error.strerror or error}; give a folder that you may write."
        raise InputError("out", msg) from None


def write(
    engine: Format, layer: Layer, device: str, version: str, found: Mapping[int, Sequence[Trial]], out: str, *,
    force: bool,
) -> list[Exported]:  # fmt: skip
    """Write the files of `engine` below the folder `out`, each whole or not at all.

    Raises:
        InputError: a file exists and `force` is not set, or cannot be written.
    """
    files = planned(engine, layer, device, version, found)
    check_targets([Path(out) / name for name, _, _ in files], out, force=force)
    written: list[Exported] = []
    for name, gemm, content in files:
        path = Path(out) / name
        write_new(str(path), content, force=force)
        written.append(Exported(engine=engine, path=str(path), gemm=gemm, tokens=sorted(found)))
    return written
