"""The report on an engine's tuned tiles: every file and entry judged, defaults, and one layer's lookup."""

from __future__ import annotations

from tilewright.collectives.tree import SourceTree
from tilewright.errors import TreeError
from tilewright.libraries.tuned.defaults import built_in
from tilewright.libraries.tuned.engine import Engine, Spec
from tilewright.libraries.tuned.judge import Judge
from tilewright.libraries.tuned.lookup import look_up
from tilewright.libraries.tuned.model import TunedReport, summarize_tuned
from tilewright.libraries.tuned.read_files import Files
from tilewright.libraries.tuned.request import Request
from tilewright.libraries.tuned.world import Device
from tilewright.triton_.functions import find_kernel, read_features
from tilewright.triton_.kernels import KERNELS, Features
from tilewright.triton_.model import TritonConfig


def read_tuned(tree: SourceTree, spec: Spec, request: Request) -> TunedReport:
    """Every tuned tile of the engine in `tree`, judged on its own device or on that of `request`.

    Raises:
        TreeError: there is no such engine.
        InputError: the folder of `request` cannot be read.
    """
    engine = Engine(tree, spec)
    triton = request.triton or next(iter(engine.triton_versions()), None)
    notes = list(request.notes)
    judge = Judge(spec, engine.version, _read_features(engine, notes))
    folders = {spec.environment: request.folder} if request.folder else {}
    device = request.device or Device("NVIDIA H100 80GB HBM3", (9, 0), None)
    world = engine.world(device, triton or "0.0.0", folders)
    reader = Files(engine, judge, world, request)
    for folder in engine.config_folders():
        reader.read_folder(folder)
    if request.folder:
        reader.read_outside(request.folder, nested=spec.name == "sglang")
    tactics = reader.tactics
    lookup = None
    if request.device is not None:
        world = engine.world(request.device, triton or "0.0.0", folders)
        if request.question is not None:
            lookup = look_up(engine, judge, world, request.question, request.tokens)
        tactics = tactics + built_in(engine, judge, world, request)
    notes.append("Bytes are those of Triton 3.6 to 3.9; a file tuned with an older Triton may have fitted there.")
    if spec.name == "vllm":
        notes.append("NVFP4 and MXFP4 MoE layers read no tuned file in vLLM: there is no selector for them.")
    if triton is not None and spec.name == "sglang":
        given = "" if request.triton else ", the newest that has a folder; --triton names the installed one"
        notes.append(f"Lookups take Triton {triton}{given}.")
    return TunedReport(
        library=spec.name,
        library_version=engine.version,
        gpu=request.device.name if request.device else None,
        triton=triton,
        root=tree.name,
        files=reader.count,
        tactics=tactics,
        summary=summarize_tuned(tactics),
        unread=reader.unread,
        lookup=lookup,
        notes=notes,
    )


def _read_features(engine: Engine, notes: list[str]) -> dict[str, tuple[Features, ...]]:
    """What the kernels of this tree can do, as their own text says; a kernel not found keeps its version's."""
    out: dict[str, tuple[Features, ...]] = {}
    for kernel in (engine.spec.moe_kernel, engine.spec.linear_kernel):
        probe = TritonConfig(None, kernel, None, "", None, 16, 16, 32, 1, 4, 3)
        try:
            out[kernel] = (read_features(find_kernel(engine.tree, engine.package, probe)),)
        except TreeError as error:
            notes.append(f"{KERNELS[kernel].label}: {error.msg}")
    return out
