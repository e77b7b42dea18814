"""`tilewright tactics`: every kernel or tile that a library may launch, each with its verdict."""

from __future__ import annotations

from typing import Any, Final

import click

from tilewright.cli.paths import PATH
from tilewright.cli.tactics_cache import cache_options
from tilewright.cli.tactics_tuned import layer_options
from tilewright.report.output import Output, output_options

OPS: Final = ("moe", "gemm", "dsl")


@click.command(epilog="Example: tilewright tactics flashinfer --root .venv/lib/python3.12/site-packages")
@click.argument("library")
@click.option("--root", metavar="DIR_OR_WHEEL", help="The library: a wheel, a site-packages, a checkout.")
@click.option("--ssh", "host", metavar="HOST", help="Read it on another host (--root there, else where it is found).")
@click.option("--op", type=click.Choice(OPS), help="flashinfer: which kernels; dsl: CuTe DSL. Default: moe.")
@click.option("--arch", help="flashinfer: sm90, sm100, sm103, sm120 or sm121. Default: sm120.")
@layer_options
@cache_options
@click.option("--check", is_flag=True, help="Exit 1 when a tactic can never run.")
@click.option(
    "--baseline", type=PATH, metavar="FILE", help="Report and check only what is new since this --json output."
)
@click.option("--diff", "other", metavar="DIR_OR_WHEEL", help="flashinfer: what changes from --root to this version.")
@click.option(
    "--sarif", type=PATH, metavar="FILE", help="Also write what can never run as SARIF 2.1.0, for a CI's annotations."
)
@output_options
def command(
    library: str,
    root: str | None,
    host: str | None,
    op: str | None,
    arch: str | None,
    layer: dict[str, Any],
    check: bool,
    baseline: str | None,
    other: str | None,
    sarif: str | None,
    cache: str | None,
    chunk: int | None,
    graph_sizes: str | None,
    running: tuple[str, ...],
    as_json: bool,
    quiet: bool,
) -> int | None:
    """Every kernel or tile that a LIBRARY (flashinfer, vllm, sglang) may launch, each with its verdict.

    FlashInfer's kernels are read from its generator and C++ sources; vLLM's and SGLang's Triton tiles from every tuned
    JSON file that they carry and from their built-in defaults. All by parsing: nothing of it is imported or run.
    With --gpu, vLLM and SGLang are judged on that GPU; with a layer (--model, or --e and --n), it is said which file
    the layer reads there: tactics vllm --root ... --gpu gb10 --e 128 --n 704 --dtype fp8_w8a8
    """
    from tilewright.libraries.readers import reader_of

    key, reader = reader_of(library)
    known = None
    if baseline and other:
        raise click.UsageError("--baseline and --diff answer different questions; give one of them.")
    if sarif and other:
        raise click.UsageError("--sarif lists what can never run in one version; drop --diff.")
    if baseline:
        from tilewright.libraries.flashinfer.baseline import read_baseline

        known = read_baseline(baseline)
    out = Output(as_json, quiet)
    if cache is None and (chunk is not None or graph_sizes is not None or running):
        raise click.UsageError("--chunk, --graph-sizes and --running go with --cache.")
    if host is not None:
        from tilewright.cli.ssh_option import fetched

        root = str(fetched(host, root, [key], out).archive)
    elif root is None:
        raise click.UsageError("Missing option '--root' (or --ssh HOST for a library on another host).")
    if cache is not None:
        if reader.kind == "tuned" or op or baseline or other or sarif or set(layer) - {"gpu"}:
            raise click.UsageError("--cache is for flashinfer, and goes with --root, --arch, --gpu and --check only.")
        from tilewright.cli.tactics_cache import run_cache

        return run_cache(
            cache, root, "sm120" if arch is None else arch, layer.get("gpu"), chunk, graph_sizes, running, check, out
        )
    if reader.kind == "tuned":
        from tilewright.cli.tactics_tuned import run_tuned

        for name, value in (("op", op), ("arch", arch), ("diff", other)):
            if value is not None:
                raise click.UsageError(f"--{name} is for flashinfer; {key} takes --gpu and a layer.")
        return run_tuned(key, root, layer, known, check, sarif, out)
    from tilewright.cli.tactics_compiled import run_compiled

    if layer:
        raise click.UsageError(
            f"--{next(iter(layer)).replace('_', '-')} is for vllm and sglang; flashinfer takes --arch."
        )
    return run_compiled(root, op or OPS[0], "sm120" if arch is None else arch, known, other, check, sarif, out)
