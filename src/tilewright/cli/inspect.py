"""`tilewright inspect`: what is in a GPU binary, and where it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tilewright.cli.exit_status import EXIT_NO
from tilewright.cli.paths import PATH
from tilewright.report.output import Output, output_options

if TYPE_CHECKING:
    from tilewright.binary.model import FileReport, Image, Kernel, Report

SHOWN_KERNELS = 40
"""Kernels of an image that are printed; --all and --json have all."""
SHOWN_FILES = 100
NAME_WIDTH = 96
"""Longest kernel name that is printed, in characters."""


@click.command(epilog="Example: tilewright inspect build/gemm.cubin --gpu rtx-pro-6000-server")
@click.argument("path", type=PATH, metavar="FILE|WHEEL|FOLDER")
@click.option("--gpu", metavar="NAME", help="What of it runs on this GPU, and why not the rest.")
@click.option("--check", is_flag=True, help="Exit 1 when nothing in it can run on --gpu.")
@click.option("--all", "everything", is_flag=True, help="Print every kernel and every file.")
@output_options
def command(path: str, gpu: str | None, check: bool, everything: bool, as_json: bool, quiet: bool) -> int | None:
    """Kernels in a cubin, fatbinary, object, library or PTX file, with registers, shared memory, stack, spills and
    target architecture; what each library of a WHEEL or FOLDER was compiled for; and why an image does not load.

    An image that a GPU cannot load fails as "Error Internal" or "no kernel image is available", however much memory is
    free. Nothing is run or unpacked to disk.
    """
    from tilewright.binary.inspect import inspect
    from tilewright.hardware.names import resolve_gpu

    if check and gpu is None:
        raise click.UsageError("--check asks whether it runs on a GPU; name one with --gpu.")
    chosen = resolve_gpu(gpu) if gpu is not None else None
    out = Output(as_json, quiet)
    report = inspect(path, chosen)
    if as_json:
        out.document(report)
    else:
        _print(out, report, everything)
    return EXIT_NO if check and (report.verdict is None or report.verdict.runs not in ("native", "jit")) else None


def _print(out: Output, report: Report, everything: bool) -> None:
    cpu = f", host code for {', '.join(report.cpu)}" if report.cpu else ""
    out.heading(f"{_plain(report.path)}  ({report.kind}{cpu})")
    if report.kind == "file":
        for file in report.files:
            _print_file(out, file, everything)
        if not report.files:
            out.line("No device code in it.")
    else:
        _print_summary(out, report, everything)
    for item in report.unreadable:
        out.line(f"unreadable: {_plain(item.path)}: {item.error}")
    for note in [*report.notes, *(note for file in report.files for note in file.notes)]:
        out.line(note)
    if report.verdict is not None:
        out.line()
        word = {"native": "Runs", "jit": "Runs after a JIT compile"}.get(report.verdict.runs, "Does not run")
        if report.verdict.runs != "no" and any(file.usable and file.usable.none for file in report.files):
            word = "Runs in part"
        out.line(f"{word}: {report.verdict.why}.")
        if report.advice:
            out.line(report.advice)


def _plain(text: str) -> str:
    """`text` without what a terminal would take as a command."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


def _name(text: str) -> str:
    text = _plain(text)
    return text if len(text) <= NAME_WIDTH else f"{text[: NAME_WIDTH - 3]}..."


def _print_summary(out: Output, report: Report, everything: bool) -> None:
    if not report.files:
        out.line("No device code in it.")
        return
    asked = report.gpu is not None
    rows: list[list[object]] = []
    shown = report.files if everything else report.files[:SHOWN_FILES]
    for file in shown:
        sass = ", ".join(dict.fromkeys(row.target for row in file.architectures if row.kind == "sass"))
        ptx = ", ".join(dict.fromkeys(row.target for row in file.architectures if row.kind != "sass"))
        row: list[object] = [_plain(file.path), file.cpu or "", file.modules, sass or "none", ptx or "none"]
        if asked and file.usable is not None:
            row += [file.usable.native, file.usable.jit, file.usable.none]
        rows.append(row)
    columns = ["file", "cpu", "modules", "SASS", "PTX, LTO", *(["run", "JIT", "cannot"] if asked else [])]
    out.table(columns, rows, right=[2, 5, 6, 7] if asked else [2])
    if len(shown) < len(report.files):
        out.line(f"... and {len(report.files) - len(shown):,} more files; --all prints them.")
    out.line()
    out.line(f"{len(report.files):,} files with device code, {report.without_device_code:,} binaries without.")


def _print_file(out: Output, file: FileReport, everything: bool) -> None:
    for image in file.images or ():
        out.line()
        _print_image(out, image, file.modules > 1, everything)


def _print_image(out: Output, image: Image, numbered: bool, everything: bool) -> None:
    parts = [f"{image.bytes:,} bytes"]
    if image.compression:
        parts.append(f"{image.compression} of {image.uncompressed_bytes:,}")
    if image.toolkit:
        parts.append(f"CUDA {image.toolkit}")
    if image.ptx_version:
        parts.append(f"PTX {image.ptx_version}")
    if image.relocatable:
        parts.append("relocatable")
    if image.source:
        parts.append(_plain(image.source))
    module = f"module {image.module}: " if numbered else ""
    out.heading(f"{module}{image.kind.upper()} {image.target}  ({', '.join(parts)})")
    if image.verdict is not None:
        out.line(f"  {image.verdict.runs}: {image.verdict.why}")
    if image.note:
        out.line(f"  {image.note}")
    kernels = image.kernels or ()
    shown = kernels if everything else kernels[:SHOWN_KERNELS]
    if shown and image.kind == "sass":
        columns = ["kernel", "registers", "shared B", "stack B", "spills B", "constant B", "max threads"]
        out.table(columns, [_row(kernel) for kernel in shown], right=range(1, len(columns)))
    elif shown:
        out.table(["kernel", "max threads"], [[_name(kernel.name), _threads(kernel)] for kernel in shown], right=[1])
    elif image.kernels is not None:
        out.line("  No kernels in it.")
    if len(shown) < len(kernels):
        out.line(f"  ... and {len(kernels) - len(shown):,} more kernels; --all prints them.")


def _figure(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _threads(kernel: Kernel) -> str:
    limit = kernel.required_threads or kernel.max_threads
    if limit is None:
        return ""
    exact = "exactly " if kernel.required_threads else ""
    shape = [*limit]
    while len(shape) > 1 and shape[-1] == 1:
        shape.pop()
    return exact + "x".join(map(str, shape))


def _row(kernel: Kernel) -> list[object]:
    spills = "unknown"
    if kernel.spill_store_bytes is not None and kernel.spill_load_bytes is not None:
        stores, loads = kernel.spill_store_bytes, kernel.spill_load_bytes
        spills = f"{stores:,} st, {loads:,} ld" if stores or loads else "0"
    return [
        _name(kernel.name),
        _figure(kernel.registers),
        _figure(kernel.shared_bytes),
        _figure(kernel.stack_bytes),
        spills,
        _figure(kernel.constant_bytes),
        _threads(kernel),
    ]
