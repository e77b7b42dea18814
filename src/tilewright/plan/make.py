"""`plan(...)`: from names and paths to a `Plan`. Every line of it comes from a rule that looked at these inputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.errors import InputError, UnknownNameError, shown
from tilewright.hardware.names import resolve_gpu
from tilewright.models.legality import tp_verdict
from tilewright.models.memory import Parallel
from tilewright.models.names import resolve_model
from tilewright.models.records import Model
from tilewright.observe.snapshot import Snapshot, load_snapshot
from tilewright.plan.engines import ENGINES, TITLES
from tilewright.plan.finding import Claim, Draft, Fact, Outcome, Plan, Rejected
from tilewright.plan.launch_check import checked
from tilewright.plan.log import scan_log
from tilewright.plan.ranking import rank
from tilewright.plan.registry import Need, Rule, rules
from tilewright.plan.rules.flag_advice import undoubled
from tilewright.plan.target import Target
from tilewright.versions import version_key

if TYPE_CHECKING:
    from tilewright.journal.experiment import Recorded

MAX_GPUS = 1024
"""More GPUs than any one plan here is for; a guard against typing errors."""

_GIVES: dict[Need, str] = {
    "library": "--library DIR_OR_WHEEL (an installed FlashInfer, or its wheel)",
    "observe": "--observe FILE.json (docs/observe-schema.md)",
    "log": "--log FILE (the server's log)",
}


def _layout(gpus: int, tp: int | None, pp: int | None, ep: int | None) -> Parallel:
    """The layout that was asked for; what is open fills the GPUs with tensor parallelism."""
    for name, value in (("gpus", gpus), ("tp", tp), ("pp", pp), ("ep", ep)):
        if value is not None and not 1 <= value <= MAX_GPUS:
            msg = f"--{name} must be a whole number from 1 to {MAX_GPUS}, not {value}."
            raise InputError(name, msg)
    if pp is None:
        pp = 1 if tp is None or tp >= gpus or gpus % tp else gpus // tp
    if gpus % pp:
        msg = f"--pp {pp} does not divide {gpus} GPUs; take a divisor of {gpus}."
        raise InputError("pp", msg)
    tp = gpus // pp if tp is None else tp
    if tp * pp > gpus:
        msg = f"--tp {tp} x --pp {pp} is {tp * pp} GPUs, and there are {gpus}; lower one of them or raise --gpus."
        raise InputError("tp", msg)
    if ep is not None and tp % ep:
        msg = f"--ep {ep} does not divide --tp {tp}; take a divisor of {tp}."
        raise InputError("ep", msg)
    return Parallel(tp=tp, pp=pp, ep=ep or 1)


def _check_engine(engine: str) -> str:
    name = engine.strip().lower().replace("tensorrt-llm", "trtllm").replace("tensorrt_llm", "trtllm")
    if name not in ENGINES:
        raise UnknownNameError("engine", engine, list(ENGINES))
    return name


def _check_snapshot(snapshot: Snapshot, gpu_key: str, gpus: int, engine: str, label: str) -> None:
    """Refuse a snapshot of another machine or engine: every conclusion from it would be wrong."""
    if len(snapshot.gpus) < gpus:
        msg = f"--observe {label} shows {len(snapshot.gpus)} GPUs and --gpus says {gpus}; pass a snapshot of that host."
        raise InputError("observe", msg)
    for gpu in snapshot.gpus:
        if gpu.name is None:
            continue
        try:
            seen = resolve_gpu(gpu.name).key
        except InputError:
            continue
        if seen != gpu_key:
            msg = (
                f"--observe {label} shows {shown(gpu.name)} and --gpu says {gpu_key}; pass --gpu {seen}, or a "
                "snapshot of the other host."
            )
            raise InputError("observe", msg)
    if snapshot.engine is not None and snapshot.engine.name != engine:
        said = TITLES[snapshot.engine.name]
        msg = (
            f"--observe {label} shows {said} and --engine says {TITLES[engine]}; pass --engine {snapshot.engine.name}."
        )
        raise InputError("observe", msg)


def make_target(
    *,
    model: str | Path | Model,
    gpu: str,
    gpus: int = 1,
    engine: str = "sglang",
    engine_version: str | None = None,
    library: str | Path | None = None,
    observe: str | Path | None = None,
    log: str | Path | None = None,
    tp: int | None = None,
    pp: int | None = None,
    ep: int | None = None,
) -> Target:
    """Read and check every input. Raises InputError (or a subclass) with one sentence for whatever is wrong."""
    parallel = _layout(gpus, tp, pp, ep)
    name = _check_engine(engine)
    if engine_version is not None:
        version_key(engine_version, "engine-version")
    record = resolve_gpu(gpu)
    resolved = model if isinstance(model, Model) else resolve_model(model)
    snapshot = load_snapshot(Path(observe)) if observe is not None else None
    label = Path(observe).name if observe is not None else "snapshot"
    if snapshot is not None:
        _check_snapshot(snapshot, record.key, gpus, name, shown(label))
        if engine_version is None and snapshot.engine is not None and snapshot.engine.version:
            version_key(snapshot.engine.version, "engine.version")
            engine_version = snapshot.engine.version
    view = None
    if library is not None:
        from tilewright.plan.library import open_library

        view = open_library(library)
    target = Target(
        model=resolved,
        gpu=record,
        gpus=gpus,
        engine=name,
        engine_version=engine_version,
        parallel=parallel,
        layout_given=tp is not None or pp is not None or ep is not None,
        library=view,
        snapshot=snapshot,
        snapshot_source=f"snapshot {label}",
        log=scan_log(Path(log)) if log is not None else None,
        log_source=f"log {Path(log).name}" if log is not None else "log",
    )
    return target if target.layout_given else _that_can_be_cut(target)


def _that_can_be_cut(target: Target) -> Target:
    """The target in its best layout, where the default one cannot be cut: every command would be for nothing."""
    from tilewright.plan.modelled import best_layout

    if tp_verdict(target.model, target.parallel).legal:
        return target
    best = best_layout(target)
    if best is None:
        return target
    return replace(target, parallel=Parallel(tp=best.tp, pp=best.pp, ep=best.ep), asked=target.parallel)


def _given(target: Target) -> set[Need]:
    pairs: tuple[tuple[Need, object], ...] = (
        ("library", target.library),
        ("observe", target.snapshot),
        ("log", target.log),
    )
    return {need for need, value in pairs if value is not None}


def run_rules(target: Target, which: Iterable[Rule] | None = None) -> tuple[list[Outcome], dict[Need, list[str]]]:
    """What the rules yield, and for each input that was not given what the rules that need it would look at."""
    outcomes: list[Outcome] = []
    missing: dict[Need, list[str]] = {}
    given = _given(target)
    for rule in rules() if which is None else which:
        lacking: list[Need] = [need for need in rule.needs if need not in given]
        for need in lacking:
            missing.setdefault(need, []).append(rule.looks_at)
        if not lacking:
            outcomes.extend(rule.run(target))
    return outcomes, missing


def _target_keys(target: Target) -> dict[str, Any]:
    library = target.library
    return {
        "model": target.model.key,
        "checkpoint": target.model.checkpoint.name,
        "gpu": target.gpu.key,
        "gpu_name": target.gpu.name,
        "arch": target.gpu.arch,
        "gpus": target.gpus,
        "engine": target.engine,
        "engine_version": target.engine_version,
        "tp": target.parallel.tp,
        "pp": target.parallel.pp,
        "ep": target.parallel.ep,
        "library": library.name if library else None,
        "library_version": library.version if library else None,
        "library_title": library.title if library else None,
        "cutlass": library.cutlass if library else None,
    }


SHARED = ("summary", "remarks")
"""The keys of the baseline to which several rules add sentences: what matters most, and what is worth knowing."""


def _merge(facts: Iterable[Fact]) -> dict[str, Any]:
    """The baseline. Sentences of the summary come with a place (a number) and are put in that order."""
    baseline: dict[str, Any] = {key: [] for key in SHARED}
    for fact in facts:
        if fact.key in SHARED:
            baseline[fact.key] += fact.value
        else:
            baseline[fact.key] = fact.value
    baseline["summary"] = [text for _, text in sorted(baseline["summary"])]
    return baseline


_BLOCKERS = frozenset({"does_not_fit", "layout_does_not_divide"})


def _startable(drafts: list[Draft], target: Target) -> list[Draft]:
    """`drafts` without those whose commands start a server that cannot start: the model does not fit, or its layout
    cannot be cut. What is found in a library or a log stays."""
    if target.asked is not None or not any(item.id in _BLOCKERS for item in drafts):
        return drafts
    start = target.launch()
    return [
        item
        for item in drafts
        if item.metric in ("runs", "health") or not any(start in command for command in item.fix.commands)
    ]


def make_plan(target: Target, experiments: Iterable[Recorded] | None = None) -> Plan:
    """Run every rule on `target` and rank what they found, in the light of the `experiments` of a journal."""
    outcomes, missing = run_rules(target)
    drafts = _startable([item for item in outcomes if isinstance(item, Draft)], target)
    rejected = [item for item in outcomes if isinstance(item, Rejected)]
    drafts, refused = checked(undoubled(drafts), target)
    rejected += refused
    baseline = _merge(item for item in outcomes if isinstance(item, Fact))
    claims = [item for item in outcomes if isinstance(item, Claim)]
    baseline["claims"] = [
        {"id": item.id, "claim": item.claim, "refutation": item.refutation, "evidence": item.evidence}
        for item in claims
    ]
    baseline["not_given"] = [
        {"input": _GIVES[need], "would_add": sorted(set(looks))} for need, looks in sorted(missing.items())
    ]
    baseline["notes"] = [*target.model.notes, *target.model.problems, *target.notes]
    if experiments is not None:
        from tilewright.journal.learn import learn

        learnt = learn(drafts, rejected, experiments, _target_keys(target))
        drafts, rejected, baseline["tried"] = learnt.drafts, learnt.rejected, learnt.tried
    return Plan(target=_target_keys(target), baseline=baseline, findings=rank(drafts), rejected=rejected)


def plan(*, journal: str | Path | None = None, **inputs: Any) -> Plan:
    """The plan for a model on GPUs: `make_target`'s arguments, one ranked answer (DESIGN 4.6).

    With `journal` (a store with experiments) it does not propose again what was done or refuted under the same
    conditions, and says what was tried.
    """
    target = make_target(**inputs)
    if journal is None:
        return make_plan(target)
    from tilewright.journal.journal import Journal, standing

    with Journal.read(Path(journal)) as opened:
        return make_plan(target, standing(opened.entries()))


__all__ = ["make_plan", "make_target", "plan", "run_rules"]
