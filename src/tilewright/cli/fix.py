"""`tilewright fix`: make the tactics that overflow run, or keep the autotuner from trying them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tilewright.cli.paths import PATH
from tilewright.report.output import Output, output_options

if TYPE_CHECKING:
    from tilewright.libraries.flashinfer.fix import Fix, Write
    from tilewright.probe.compiler import Compiler

LIBRARIES = ("flashinfer",)
ARCHS = ("sm120", "sm121")


@click.command(
    epilog="Example: tilewright fix flashinfer --root .venv/lib/python3.12/site-packages --write patch --out fix.patch"
)
@click.argument("library")
@click.option(
    "--root", required=True, metavar="DIR_OR_WHEEL", help="The library: a wheel, a site-packages, a checkout."
)
@click.option(
    "--write",
    required=True,
    type=click.Choice(["blocklist", "patch"]),
    help="blocklist: no rebuild, skips what cannot run. patch: a rebuild, lets it run.",
)
@click.option(
    "--out", type=PATH, metavar="FILE", help="Write it here; without, to stdout (and the explanation to stderr)."
)
@click.option("--force", is_flag=True, help="Replace FILE where it exists.")
@click.option("--arch", default="sm120", show_default=True, help="sm120 or sm121 (the same module).")
@click.option("--operands", metavar="AxB", help="blocklist: whose ids, as nvfp4xnvfp4; needed where several have some.")
@click.option("--gpu-name", default="*", metavar="NAME", help="blocklist: load it on this device only (torch's name).")
@click.option("--prove", is_flag=True, help="patch: compile the launcher before and after (nvcc, no GPU; minutes).")
@click.option(
    "--nvcc", type=PATH, metavar="PATH", help="--prove: the compiler; default: of CUDA_HOME, PATH, the probe extra."
)
@output_options
def command(
    library: str,
    root: str,
    write: Write,
    out: str | None,
    force: bool,
    arch: str,
    operands: str | None,
    gpu_name: str,
    prove: bool,
    nvcc: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Make the tactics of LIBRARY (flashinfer) that overflow run, or keep its autotuner from trying them.

    A patch (git apply, or patch -p1) or a blocklist for exactly the version at --root, and what it takes to make it
    count: what is in its way, the rebuild, caches to drop, how to confirm and how to undo. Nothing is applied.
    """
    from tilewright.report.write_file import check_new, write_new

    _known(library)
    arch = _arch(arch)
    if write == "patch" and (operands is not None or gpu_name != "*"):
        raise click.UsageError("--operands and --gpu-name belong to --write blocklist.")
    if write == "blocklist" and (prove or nvcc is not None):
        raise click.UsageError("--prove and --nvcc belong to --write patch.")
    if nvcc is not None and not prove:
        raise click.UsageError("--nvcc belongs to --prove.")
    if force and out is None:
        raise click.UsageError("--force belongs to --out.")
    if out is not None:
        check_new(out, force=force)
    output = Output(as_json, quiet)
    result = _made(root, arch, write, out, operands, gpu_name, _compiler(nvcc) if prove else None)
    if out is not None and result.content is not None:
        write_new(out, result.content.encode(), force=force)
    if as_json:
        output.document(result)
        return
    _show(result, out, output)


def _compiler(nvcc: str | None) -> Compiler:
    from tilewright.probe.compiler import find_nvcc

    return find_nvcc(nvcc)


def _made(
    root: str,
    arch: str,
    write: Write,
    out: str | None,
    operands: str | None,
    gpu_name: str,
    compiler: Compiler | None,
) -> Fix:
    from tilewright.collectives.tree import open_tree
    from tilewright.libraries.flashinfer.fix import make_fix
    from tilewright.libraries.flashinfer.tactics import read_report

    with open_tree(root) as tree:
        report = read_report(tree, "moe", arch)
        return make_fix(tree, report, write, out=out, operands=operands, gpu=gpu_name, compiler=compiler)


def _show(result: Fix, out: str | None, output: Output) -> None:
    """The file on stdout and the explanation beside it, or the explanation on stdout where the file is elsewhere."""
    from tilewright.report.fix_text import explain

    if result.content is None or out is not None:
        explain(result, output.line)
        if result.content is not None:
            output.line()
            output.line(f"Written: {out}")
        return
    explain(result, output.note)
    click.echo(result.content, nl=False)


def _known(library: str) -> None:
    from tilewright.errors import InputError, shown

    if library.lower() not in LIBRARIES:
        msg = f"There is no fix for {shown(library)}: {', '.join(LIBRARIES)} is the library that is known so far."
        raise InputError("library", msg)


def _arch(text: str) -> str:
    from tilewright.arch import arch_name
    from tilewright.errors import InputError, shown

    name = arch_name(text)
    if name not in ARCHS:
        msg = f"--arch {shown(text)} has no fix; legal are {' and '.join(ARCHS)}, which share one module."
        raise InputError("arch", msg)
    return name
