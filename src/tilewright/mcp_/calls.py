"""What the tools run: the function of the library that the command calls, with the tool's checked arguments.

Each takes the arguments as `arguments.py` checked them, paths resolved and inside the roots, and answers with the value
of the command's `--json`. Raises InputError for what the library refuses.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Final

import msgspec

from tilewright.errors import InputError, shown

MAX_LOG_BYTES: Final = 1 << 30
"""Largest log file that a call explains: 100 MB take a few seconds, and a call has a time limit."""


def fit(given: dict[str, Any]) -> Any:
    from tilewright.cutlass.config import parse_config
    from tilewright.cutlass.fit import fit

    brief = given.pop("brief", None)
    _switch("brief", brief)
    return fit(parse_config(given), brief=bool(brief))


def fit_triton(given: dict[str, Any]) -> Any:
    from tilewright.triton_.config import parse_triton
    from tilewright.triton_.fit import fit_triton

    return fit_triton(parse_triton({key: value for key, value in given.items() if value is not None}))


def _switch(name: str, value: Any) -> None:
    if value is not None and not isinstance(value, bool):
        raise InputError(name, f"{name}: {shown(value)} is not true or false.")


def tactics(given: dict[str, Any]) -> Any:
    from tilewright.libraries.readers import reader_of

    key, reader = reader_of(given["library"])
    whole, only = given.pop("with_fields", None), given.pop("never_runs", None)
    compiled = ("op", "arch")
    layer = {name: value for name, value in given.items() if name not in ("library", "root", *compiled)}
    layer = {name: value for name, value in layer.items() if value is not None}
    if reader.kind == "tuned":
        from tilewright.cli.tactics_tuned import read_tiles

        for name in compiled:
            if given[name] is not None:
                raise InputError(name, f"{name}: it is for flashinfer; {key} takes gpu and a layer.")
        if only:
            raise InputError("never_runs", "never_runs: it is for flashinfer; for tuned tiles, give gpu.")
        return read_tiles(key, given["root"], layer)
    if layer:
        raise InputError(next(iter(layer)), f"{next(iter(layer))}: it is for vllm and sglang; flashinfer takes arch.")
    from tilewright.cli.tactics_compiled import known_arch, read_kernels
    from tilewright.report.tactics_text import never_runs

    report = read_kernels(given["root"], given["op"] or "moe", known_arch(given["arch"] or "sm120"))
    tactics = [item for item in report.tactics if never_runs(item)] if only else report.tactics
    if not whole:
        tactics = [_brief(item) for item in tactics]
    return msgspec.structs.replace(report, tactics=tactics)


def _brief(tactic: Any) -> Any:
    """A tactic whose verdict leaves out the fields and fixes, which `fit` gives for its config."""
    return msgspec.structs.replace(tactic, verdict=msgspec.structs.replace(tactic.verdict, fields=[], fixes=[]))


def collectives(given: dict[str, Any]) -> Any:
    from tilewright.cli.collectives import SCALING
    from tilewright.collectives.query import Filters, collectives, normal_arch
    from tilewright.cutlass.config import parse_config

    config = parse_config(given["config"]) if given["config"] is not None else None
    filters = Filters(
        arch=normal_arch(given["arch"], "arch") if given["arch"] is not None else None,
        scaling=SCALING[given["scaling"]] if given["scaling"] is not None else None,  # pyright: ignore[reportArgumentType]
        array=given["array"],
        operation=given["operation"],
        sparse=given["sparse"],
    )
    return collectives(given["root"], filters, config)


def predict(given: dict[str, Any]) -> Any:
    from tilewright.cli.predict import answerer

    basis = given.pop("basis", None) or "auto"
    if basis not in ("auto", "modelled"):
        raise InputError("basis", f"basis: {shown(basis)} is not auto or modelled.")
    return answerer(basis, None)(given)


def layout(given: dict[str, Any]) -> Any:
    from tilewright.serving.layout import layout
    from tilewright.serving.questions import DecodeQuestion

    names = DecodeQuestion.__struct_fields__
    asked = {name: given[name] for name in given if name in names and name not in ("context", "concurrency")}
    limits = {"slo_ttft_s": given["slo_ttft"], "slo_tpot_s": given["slo_tpot"]}
    rest = {name: given[name] for name in ("context", "concurrency", "prompt_tokens", "goal", "mem_fraction")}
    answer = layout(DecodeQuestion(**asked), **limits, **rest)
    if given["every"]:
        return answer
    fitting = [item for item in answer.layouts if item.status == "fits"]
    return msgspec.structs.replace(answer, layouts=type(answer.layouts)(fitting)) if fitting else answer


def explain(given: dict[str, Any]) -> Any:
    from tilewright.diagnose.explain import explain

    path, text = given["file"], given["text"]
    if (path is None) == (text is None):
        raise InputError("file", "Give file (a log under a root of this server) or text (the log itself), one of them.")
    if text is not None:
        return explain(io.BytesIO(text.encode("utf-8", "replace")), "text")
    size = Path(path).stat().st_size
    if size > MAX_LOG_BYTES:
        msg = (
            f"file: the log has {size:,} bytes; a call reads at most {MAX_LOG_BYTES:,}. Give its last part, or use the "
        )
        raise InputError("file", msg + "command: tilewright explain FILE.")
    with Path(path).open("rb") as stream:
        return explain(stream, Path(path).name)


def plan(given: dict[str, Any]) -> Any:
    from tilewright.plan.make import plan
    from tilewright.report.output import json_bytes

    out, force = given.pop("out", None), given.pop("force", False)
    result = plan(log=given.pop("log_file", None), **given)
    if out is not None:
        from tilewright.report.plan_files import write_plan
        from tilewright.report.plan_text import markdown

        write_plan(Path(out), markdown(result), json_bytes(result), force=force)
    return result


def gpus(given: dict[str, Any]) -> Any:
    from tilewright.cli.gpus import gpus_document

    return gpus_document(given["name"])


def models(given: dict[str, Any]) -> Any:
    from tilewright.models.memory import Parallel
    from tilewright.models.names import resolve_model
    from tilewright.report.models_document import memory_of, model_document, models_document

    if given["name"] is None:
        if given["gpu_name"] is not None:
            raise InputError("gpu_name", "gpu_name: it needs the name of a model.")
        return models_document()
    model = resolve_model(given["name"])
    if given["gpu_name"] is None:
        return model_document(model)
    sizes = {name: given[name] for name in ("tp", "ep", "pp", "dcp", "attention_dp")}
    parallel = Parallel(**sizes)
    kv_layout = given["kv_layout"] or ""
    return model_document(
        model, memory_of(model, given["gpu_name"], parallel, given["fraction"], kv_layout, given["mtp"])
    )


def inspect(given: dict[str, Any]) -> Any:
    from tilewright.binary.inspect import inspect
    from tilewright.hardware.names import resolve_gpu

    return inspect(given["path"], resolve_gpu(given["gpu"]) if given["gpu"] is not None else None)


def flags(given: dict[str, Any]) -> Any:
    from tilewright.libraries.engine_flags.document import flags_document

    return flags_document(
        given["engine"],
        given["root"],
        given["names"] or (),
        version=given["engine_version"],
        diff=given["diff"],
        show_uses=given["show_uses"],
        launch=given["launch"],
    )


def advise(given: dict[str, Any]) -> Any:
    from tilewright.collectives.tree import open_tree
    from tilewright.libraries.engine_flags import engine_flags, snapshot
    from tilewright.serving.advice import AdviceQuestion, advise

    engine, root, version = (given.pop(name) for name in ("engine", "root", "engine_version"))
    if root is None:
        flags = snapshot(engine, version)
    else:
        with open_tree(root) as tree:
            flags = engine_flags(tree, engine)
    return advise(AdviceQuestion(**given), flags)
