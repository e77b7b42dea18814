"""The JSON documents of the commands, as types: what `docs/schema/` is generated from and outputs are checked against.

Commands whose answer is a type of its own are named by it; the documents of `gpus` and `models`, which are put
together from catalogue records, are described here.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

import msgspec


class RejectedFigure(msgspec.Struct, frozen=True):
    """A reading that was not taken, and why."""

    value: Any
    source: str
    why: str


class FigureDocument(msgspec.Struct, frozen=True):
    """One figure. `value` null and `kind` null: nobody published it."""

    value: Any
    kind: str | None
    sources: list[str]
    unit: str = ""
    note: str = ""
    rejected: list[RejectedFigure] = []


class GpuDocument(msgspec.Struct, frozen=True):
    """A GPU of the catalogue."""

    key: str
    name: str
    arch: str
    compute_capability: str | None
    figures: dict[str, FigureDocument]


class GpuDifference(msgspec.Struct, frozen=True):
    """A figure in which this machine differs from the catalogue. `rounding`: within nameplate rounding."""

    figure: str
    live: Any
    catalogue: Any
    relative: float | None = None
    rounding: bool = False


class LiveGpuDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU of this machine (`gpus --live`). `entry` is its key in the catalogue, `now` what it is doing."""

    index: int
    key: str | None
    name: str
    arch: str | None
    compute_capability: str | None
    figures: dict[str, FigureDocument]
    entry: str | None
    unresolved: str | None
    driver: str | None
    cuda: str | None
    now: dict[str, Any]
    differences: list[GpuDifference]
    notes: list[str]


class GpusDocument(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/gpus/1"):
    """`gpus`: `gpus` from the catalogue, or `live` with `--live`."""

    gpus: list[GpuDocument] | None = None
    live: list[LiveGpuDocument] | None = None


class ModelDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A model. The list of all models leaves out what needs its checkpoints' bytes."""

    key: str
    name: str
    hf_ids: list[str]
    family: str
    source: str
    hidden: int
    vocab: int
    layers: dict[str, int]
    attention: str
    moe: dict[str, int | None] | None
    parameters: dict[str, Any]
    checkpoint: str | None = None
    checkpoints: list[Any] = []
    config: dict[str, Any] | None = None
    config_sources: dict[str, Any] | None = None
    kv_bytes_per_token: dict[str, Any] | None = None
    tensor_parallel: list[Any] | None = None
    stored: dict[str, Any] | None = None
    rejected: list[RejectedFigure] = []
    notes: list[str] = []
    problems: list[str] = []


class ModelMemoryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of one GPU under a layout (`models NAME --gpu G`)."""

    gpu: str
    gpus: int
    tp: int
    ep: int
    pp: int
    dcp: int
    attention_dp: int
    fraction: float
    total_bytes: int | None
    usable_bytes: int | None
    weight_bytes: int
    weight_bytes_stored: int
    weight_components: dict[str, int]
    left_bytes: int | None
    fits: bool | None
    kv_layout: str | None
    kv_bytes_per_token: int | None
    kv_replicated: bool | None
    tokens: int | None
    kv_growing_bytes_per_token: int | None = None
    kv_window: int | None = None
    note: str | None = None
    engine_fractions: dict[str, float] = {}


class ModelsDocument(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/models/1"):
    """`models`."""

    models: list[ModelDocument]
    memory: ModelMemoryDocument | None = None


_TYPES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "fit": ("tilewright.report.fit_types", ("Budget", "TritonVerdict", "ErrorLine")),
    "fit-compare": ("tilewright.cutlass.compare", ("Comparison",)),
    "fit-upgrade": ("tilewright.cutlass.compare", ("LibraryComparison",)),
    "search": ("tilewright.search.model", ("SearchResult",)),
    "tactics": ("tilewright.libraries.readers", ("Report", "TunedReport")),
    "tactics-diff": ("tilewright.libraries.flashinfer.model", ("Difference",)),
    "collectives": ("tilewright.collectives.answer", ("Answer",)),
    "predict": ("tilewright.cost.estimate", ("Estimate", "Refusal")),
    "coefficients": ("tilewright.cost.kernel_models", ("Index",)),
    "probe": ("tilewright.probe.result", ("ProbeResult", "ProbeError")),
    "probe-comparison": ("tilewright.probe.against", ("Comparison",)),
    "verify": ("tilewright.verify.model", ("Verification",)),
    "fix": ("tilewright.libraries.flashinfer.fix", ("Fix",)),
    "plan": ("tilewright.plan.finding", ("Plan",)),
    "observe": ("tilewright.observe.snapshot", ("Snapshot",)),
    "inspect": ("tilewright.binary.model", ("Report",)),
    "gpus": ("tilewright.report.schema", ("GpusDocument",)),
    "models": ("tilewright.report.schema", ("ModelsDocument",)),
    "gemms": ("tilewright.serving.gemms", ("GemmsDocument",)),
    "layout": ("tilewright.serving.layout", ("LayoutAnswer",)),
    "validate": ("tilewright.serving.validate", ("Validation",)),
    "flags": ("tilewright.libraries.engine_flags.document", ("FlagsDocument",)),
    "flags-advice": ("tilewright.serving.advice.answer", ("Advice",)),
    "explain": ("tilewright.diagnose.explain", ("Explanation",)),
    "journal": ("tilewright.journal.documents", ("JournalDocument",)),
    "record": ("tilewright.journal.documents", ("RecordDocument",)),
    "bench": ("tilewright.bench.document", ("BenchDocument",)),
    "tactics-cache": ("tilewright.libraries.flashinfer.cache_report", ("CacheReport",)),
    "kernel-builds": ("tilewright.kernels.tuned", ("TunedBuilds",)),
    "tune": ("tilewright.tune.document", ("TuneDocument",)),
    "sweep": ("tilewright.sweep.document", ("SweepDocument",)),
    "results": ("tilewright.store.documents", ("ResultsDocument",)),
    "results-compare": ("tilewright.store.compare", ("Comparison",)),
    "mcp": ("tilewright.mcp_.tools", ("ToolsDocument",)),
    "results-trials": ("tilewright.tune.trials", ("TrialsDocument",)),
    "results-import": ("tilewright.store.documents", ("ImportDocument",)),
}
"""Document name -> module and types; several types: the document is one of them."""

NAMES: Final = tuple(sorted(_TYPES))


def document_types(name: str) -> tuple[Any, ...]:
    """The types that the document `tilewright/<name>/1` may be."""
    module, names = _TYPES[name]
    home = import_module(module)
    return tuple(getattr(home, item) for item in names)


def json_schema(name: str) -> dict[str, Any]:
    """JSON Schema (2020-12) of the document `tilewright/<name>/1`."""
    types = document_types(name)
    schemas, components = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    body: dict[str, Any] = schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"tilewright/{name}/1",
        **body,
        "$defs": components,
    }


def checker(name: str) -> Callable[[Any], Any]:
    """What converts a decoded document to its type, or raises msgspec.ValidationError with the path of the fault."""
    types = document_types(name)

    def check(value: Any) -> Any:
        error: msgspec.ValidationError | None = None
        for kind in types:
            try:
                return msgspec.convert(value, kind)
            except msgspec.ValidationError as caught:
                error = error or caught
        raise error or msgspec.ValidationError(f"{name}: no type")

    return check
