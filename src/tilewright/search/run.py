"""`search_configs`: the legal kernel configs of a problem, ranked for a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tilewright.cutlass.config import KernelConfig, config_to_dict
from tilewright.cutlass.fit import LIMITS
from tilewright.errors import InputError, shown
from tilewright.formats.elements import ELEMENTS
from tilewright.hardware.gpu import Gpu
from tilewright.search.machine import Machine, default_gpu, machine
from tilewright.search.model import Candidate, SearchCounts, SearchProblem, SearchResult
from tilewright.search.problem import Problem, dense_problem, grouped_problem
from tilewright.search.ranking import Rated, explain, order, terms
from tilewright.search.rating import operand_of, rate, traffic_of
from tilewright.search.space import Found, Space
from tilewright.search.tree import TreeCollectives

__all__ = ["search_configs"]

MAX_TOP: Final = 1000
EXPANDED: Final = 2
"""Tiles whose other numbers of stages and epilogue tiles are rated too, as a multiple of those that are answered."""
TMA_BITS: Final = 128
"""A TMA tensor's rows start at multiples of 16 bytes (CUDA driver API, cuTensorMapEncodeTiled)."""

SEARCHED_KEYS: Final = ("id",)
"""Keys of a config that mean nothing to a search."""


def search_configs(
    given: Mapping[str, Any],
    *,
    gpu: Gpu | None = None,
    m: int | None = None,
    n: int | None = None,
    k: int | None = None,
    experts: int | None = None,
    tokens_per_expert: int | None = None,
    top: int = 10,
    root: str | None = None,
    unknown_root: str | None = None,
) -> SearchResult:
    """The legal kernel configs for a problem, best first.

    Args:
        given: keys of a kernel config (DESIGN 4.2) that are fixed: `a` and `arch` (or `gpu`) at least; every other key
            that is left out is searched.
        gpu: what to rank for; the catalogue's largest GPU of the arch when None.
        m: rows of a dense problem, or of all experts together. `n` outputs, `k` elements summed over.
        experts: groups of a grouped problem (`given["kind"]`), each of `tokens_per_expert` rows.
        top: how many tiles to answer, each with its best variant.
        root: a folder or wheel with CUTLASS: only what its own collectives can run is proposed, and each proposal
            names the one that does. Its release is `given["cutlass"]`.
        unknown_root: why the content of that tree is not known; then nothing is proposed.

    Nothing that `fit` refuses is ever proposed. The same inputs give the same answer.

    Raises:
        InputError: a key or an extent that is none of the legal ones, or one that no TMA kernel can load.
    """
    if isinstance(top, bool) or not isinstance(top, int) or not 1 <= top <= MAX_TOP:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError("top", f"--top: {shown(top)} is not a whole number from 1 to {MAX_TOP:,}.")
    fixed = {key: value for key, value in given.items() if value is not None and key not in SEARCHED_KEYS}
    arch, gpu, assumed = _target(fixed, gpu)
    space = Space(fixed, arch)
    base = space.bases[0]
    problem = _problem(base, m, n, k, experts, tokens_per_expert)
    for config in space.bases:
        _check_alignment(config, problem)
    machine_ = machine(gpu, operand_of(base))
    tree = TreeCollectives(root) if root is not None and unknown_root is None else None
    ranked = [] if unknown_root is not None else _ranked(space, problem, machine_, top, tree)
    notes = [unknown_root] if unknown_root is not None else _notes(space, machine_, base, ranked)
    return SearchResult(
        problem=SearchProblem(
            kind=base.kind, rows=problem.rows, groups=problem.count,
            rows_per_group=sorted({rows for rows, _ in problem.groups}), n=problem.n, k=problem.k, flops=problem.flops,
        ),
        arch=arch, gpu=gpu.key, gpu_assumed=assumed, cutlass=base.cutlass, root=root,
        given={key: value for key, value in config_to_dict(base).items() if key in fixed},
        counts=SearchCounts(
            tried=space.tally["tried"], legal=len(space.seen) - space.tally["not in the tree"],
            illegal=space.tally["illegal"] + space.tally["of no use"], overflow=space.tally["overflow"],
            unsupported=space.tally["unsupported"] + space.tally["not in the tree"],
        ),
        figures=list(machine_.figures), needed_in_flight_bytes=machine_.needed_in_flight,
        candidates=[
            _candidate(rank, item, variants, machine_, tree) for rank, (item, variants) in enumerate(ranked, 1)
        ],
        why_first=explain(ranked[0][0], ranked[1][0], machine_) if len(ranked) > 1 else None,
        notes=notes,
    )  # fmt: skip


def _target(fixed: dict[str, Any], gpu: Gpu | None) -> tuple[str, Gpu, bool]:
    """Architecture and GPU of the search; whether the GPU was assumed."""
    from tilewright.cutlass.config import parse_config

    arch = fixed.get("arch")
    if arch is None:
        if gpu is None:
            raise InputError("arch", "arch: give --gpu (or --arch) to say what to search for.")
        if gpu.arch not in LIMITS:
            raise InputError("gpu", f"--gpu: {gpu.name} is {gpu.arch}; kernels are searched for {', '.join(LIMITS)}.")
        return gpu.arch, gpu, False
    arch = parse_config({"arch": arch, "a": "bf16", "tile": [128, 128, 64]}).arch
    if gpu is None:
        return arch, default_gpu(arch), True
    if gpu.arch != arch:
        raise InputError("gpu", f"--gpu: {gpu.name} is {gpu.arch}, not {arch}; leave one of --gpu and --arch out.")
    return arch, gpu, False


def _problem(
    base: KernelConfig, m: int | None, n: int | None, k: int | None, experts: int | None, per_expert: int | None
) -> Problem:
    if base.kind == "grouped":
        return grouped_problem(m, n, k, experts, per_expert)
    for field, value in (("experts", experts), ("tokens-per-expert", per_expert)):
        if value is not None:
            raise InputError(field, f"--{field}: it says rows of a grouped problem; add --kind grouped, or use --m.")
    return dense_problem(m, n, k)


def _check_alignment(config: KernelConfig, problem: Problem) -> None:
    """Whether TMA can load and store the problem's tensors at all: can_implement asks the same.

    Raises InputError for an extent that no config of the search could take.
    """
    rows = sorted({rows for rows, _ in problem.groups})[0]
    contiguous = {
        "a": ("k", problem.k) if config.layout_a == "row" else ("m", rows),
        "b": ("k", problem.k) if config.layout_b == "col" else ("n", problem.n),
        "d": ("n", problem.n) if config.layout_d == "row" else ("m", rows),
    }
    output = config.final_output if config.fusion == "finalize" else config.d
    for operand, (axis, extent) in contiguous.items():
        name = output if operand == "d" else getattr(config, operand)
        if name in (None, "void"):
            continue
        least = TMA_BITS // ELEMENTS[name].bits
        unit = max(getattr(config, f"align_{operand}"), least) if operand != "d" else least
        if extent % unit:
            msg = (
                f"--{axis}: {extent} is no multiple of {unit}, which TMA needs of {operand.upper()} ({name}); pad it "
                f"to {-(-extent // unit) * unit}."
            )
            raise InputError(axis, msg)


def _ranked(
    space: Space, problem: Problem, gpu: Machine, top: int, tree: TreeCollectives | None
) -> list[tuple[Rated, int]]:
    """The best variant of each tile, swap_ab and cluster with the number of those behind it, best first."""
    groups: dict[tuple[Any, ...], list[Rated]] = {}
    traffic = {config.swap_ab: traffic_of(config) for config in space.bases}

    def key(item: Rated) -> tuple[object, ...]:
        return order(item, gpu)

    def add(found: Found) -> None:
        config, laid = found
        if tree is not None and tree.mainloop(config) is None:
            space.refuse("no collective of the tree takes it")
            return
        item = Rated(config, laid, rate(config, laid, problem, gpu, traffic[config.swap_ab]))
        groups.setdefault((config.tile, config.swap_ab, config.cluster), []).append(item)

    for found in space:
        add(found)
    for best in sorted((min(items, key=key) for items in groups.values()), key=key)[: EXPANDED * top]:
        for found in space.variants(best.config):
            add(found)
    ranked = [(min(items, key=key), len(items) - 1) for items in groups.values()]
    return sorted(ranked, key=lambda entry: key(entry[0]))[:top]


def _candidate(rank: int, item: Rated, variants: int, gpu: Machine, tree: TreeCollectives | None) -> Candidate:
    config, laid, rating = item
    return Candidate(
        rank=rank, config=config_to_dict(config), stages=laid.count.stages, smem_bytes=laid.smem_bytes,
        limit_bytes=LIMITS[config.arch], time_s=round(rating.time_s, 10), bound=rating.bound,
        terms=terms(item, gpu), variants=variants, collective=tree.mainloop(config) if tree is not None else None,
    )  # fmt: skip


def _notes(space: Space, gpu: Machine, base: KernelConfig, ranked: list[tuple[Rated, int]]) -> list[str]:
    notes: list[str] = []
    if not ranked:
        rules = [f"{text} ({count:,})" for text, count in space.refusals.most_common(3)]
        what = "; ".join(rules) or "everything overflows"
        notes.append(f"No legal config: {what}.")
    missing = [figure.name for figure in gpu.figures if figure.value is None]
    if missing:
        notes.append(f"Not published for {gpu.gpu.name}, and left out of the ranking: {', '.join(missing)}.")
    if base.op_class == "mixed_input":
        notes.append("Bytes of the scales of mixed input depend on their group size and are not counted.")
    return notes
