"""Whether what was built and run is what `fit` said."""

from __future__ import annotations

from tilewright.verify.model import Build, Outcome, Predicted, Run

__all__ = ["judge"]

SET_ATTRIBUTE = "cudaFuncSetAttribute"
SUCCESS = 0


def _code(run: Run, step: str) -> tuple[int, str] | None:
    return next(((call.code, call.name) for call in run.calls if call.step == step), None)


def judge(predicted: Predicted, build: Build, run: Run | None, *, launched: bool) -> tuple[Outcome, str]:
    """(outcome, one sentence). `launched`: whether the program launches the kernel; `run` None: built only."""
    if predicted.status == "unsupported":
        return "no_prediction", f"fit has no verdict for it; {_seen(build, run)}."
    if not build.ok:
        return _not_built(predicted, build)
    if predicted.status == "illegal":
        return "differ", f"fit says that it does not compile, and it does ({build.smem_bytes:,} bytes)."
    if build.smem_bytes != predicted.smem_bytes:
        return (
            "differ",
            f"fit says {predicted.smem_bytes:,} bytes, the built kernel has {build.smem_bytes:,}.",
        )
    if run is None:
        return "agree", f"builds with {build.smem_bytes:,} bytes, as fit says; nothing was run."
    if predicted.status == "overflow":
        return _overflow(build, run)
    return _fits(build, run, launched)


def _not_built(predicted: Predicted, build: Build) -> tuple[Outcome, str]:
    first = build.errors[0] if build.errors else "no message"
    if predicted.status == "illegal":
        return "agree", f"does not compile, as fit says: {first}"
    if predicted.status == "overflow" and build.capacity_assert:
        return "agree", f"the kernel's own assert refuses it, as fit says: {first}"
    return "differ", f"fit says {predicted.status}, and it does not compile: {first}"


def _overflow(build: Build, run: Run) -> tuple[Outcome, str]:
    asked = _code(run, SET_ATTRIBUTE)
    if asked is None:
        return "not_run", f"the driver was not asked: {_ended(run)}."
    if asked[0] == SUCCESS:
        return "differ", f"fit says overflow, and the driver grants {build.smem_bytes:,} bytes."
    tail = _code(run, "initialize")
    says = f"; initialize() answers {tail[1]}" if tail else ""
    return "agree", f"the driver refuses {build.smem_bytes:,} bytes ({asked[1]}){says}, as fit says."


def _fits(build: Build, run: Run, launched: bool) -> tuple[Outcome, str]:
    failed = next((call for call in run.calls if call.code != SUCCESS), None)
    asked = _code(run, SET_ATTRIBUTE)
    if asked is None and failed is not None:
        return "not_run", f"the kernel was not tried: {failed.step} answers {failed.name}."
    if run.end in ("hung", "died"):
        return "differ", f"fit says that it runs; {_ended(run)}."
    if failed is not None:
        return "differ", f"fit says that it runs; {failed.step} answers {failed.name}."
    values = run.values
    if values is not None and values.wrong:
        return "differ", f"runs, and {values.wrong:,} of {values.total:,} elements are wrong (worst {values.worst:g})."
    if not launched:
        return "agree", f"the driver grants {build.smem_bytes:,} bytes, as fit says; the kernel was not launched."
    if run.end != "finished" or _code(run, "cudaDeviceSynchronize") is None:
        return "differ", f"fit says that it runs; {_ended(run)}."
    if values is None:
        return "agree", f"runs with {build.smem_bytes:,} bytes, as fit says; its output was not compared."
    return "agree", f"runs with {build.smem_bytes:,} bytes, as fit says; all {values.total:,} elements are right."


def _ended(run: Run) -> str:
    last = run.calls[-1].step if run.calls else "its start"
    if run.end == "hung":
        return f"its process hung after {last} and was ended"
    if run.end == "died":
        return f"its process died after {last}" + (f" (signal {run.signal})" if run.signal else "")
    return f"its process ended after {last}" + (f" ({run.calls[-1].name})" if run.calls else "")


def _seen(build: Build, run: Run | None) -> str:
    if not build.ok:
        return "it does not compile" + (f": {build.errors[0]}" if build.errors else "")
    if run is None:
        return f"it builds with {build.smem_bytes:,} bytes"
    failed = next((call for call in run.calls if call.code != SUCCESS), None)
    if failed is not None:
        return f"{failed.step} answers {failed.name} ({build.smem_bytes:,} bytes)"
    return f"it runs with {build.smem_bytes:,} bytes" if run.end == "finished" else _ended(run)
