"""`tilewright collectives`: what the CUTLASS headers of an installed library, a checkout or a wheel can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click
import msgspec

from tilewright.cli.exit_status import EXIT_NO
from tilewright.cli.paths import PATH
from tilewright.report.output import Output, output_options

if TYPE_CHECKING:
    from tilewright.cutlass.config import KernelConfig

SCALING: Final = {
    "none": "none",
    "block-scaled": "block_scaled",
    "block_scaled": "block_scaled",
    "blockwise": "blockwise",
}


@click.command(
    epilog="Example: tilewright collectives --root flashinfer_python-0.6.2-py3-none-any.whl --arch sm120 "
    "--scaling blockwise"
)
@click.option(
    "--root", metavar="DIR_OR_WHEEL", help="Folder or wheel that holds CUTLASS; default: what is installed here."
)
@click.option("--ssh", "host", metavar="HOST", help="Read them on another host; nothing is installed there.")
@click.option("--arch", metavar="ARCH", help="Only those for sm90, sm100, sm103, sm120, ...")
@click.option(
    "--scaling",
    type=click.Choice(list(SCALING), case_sensitive=False),
    help="Only those that scale so. block-scaled: in the MMA (NVFP4, MX). blockwise: FP8, in software.",
)
@click.option(
    "--array/--no-array", "array", default=None, help="Only grouped (pointer-array) ones, or only the others."
)
@click.option("--sparse/--no-sparse", "sparse", default=None, help="Only 2:4 sparse ones, or only dense ones.")
@click.option("--operation", type=click.Choice(["mma", "epilogue"]), help="Only mainloops, or only epilogues.")
@click.option(
    "--for", "config_file", type=PATH, metavar="CONFIG.json", help="Which could run this kernel config ('-': stdin)?"
)
@click.option("--check", is_flag=True, help="With --for: exit 1 when none could.")
@output_options
def command(
    root: str | None,
    host: str | None,
    arch: str | None,
    scaling: str | None,
    array: bool | None,
    sparse: bool | None,
    operation: str | None,
    config_file: str | None,
    check: bool,
    as_json: bool,
    quiet: bool,
) -> int | None:
    """What the CUTLASS headers on this machine can do, each collective once.

    Read from the headers by parsing, in place, also inside a wheel: every mainloop and epilogue collective, what it
    takes and demands, the builder line that gives it, the schedule tags that builder accepts, and what no builder
    accepts. Nothing is imported or run.
    """
    from tilewright.collectives.query import Filters, collectives, normal_arch

    if check and config_file is None:
        raise click.UsageError("--check asks whether a config could run; give the config with --for.")
    filters = Filters(
        arch=normal_arch(arch, "--arch") if arch is not None else None,
        scaling=SCALING[scaling.lower()] if scaling is not None else None,  # pyright: ignore[reportArgumentType]
        array=array,
        operation=operation,  # pyright: ignore[reportArgumentType]
        sparse=sparse,
    )
    config = _read_config(config_file) if config_file is not None else None
    out = Output(as_json, quiet)
    if host is not None:
        from tilewright.cli.ssh_option import fetched
        from tilewright.collectives.library import KNOWN

        there = fetched(host, root, list(KNOWN.values()), out)
        answer = collectives(str(there.archive), filters, config)
        answer = msgspec.structs.replace(answer, root=there.name)
    else:
        if root is None:
            from tilewright.collectives.installed import default_root

            root = str(default_root())
        answer = collectives(root, filters, config)
    if as_json:
        out.document(answer)
    else:
        from tilewright.report.collectives_text import show_collectives, show_for

        if config is None:
            show_collectives(answer, filters, out)
        else:
            show_for(answer, out)
    if check and answer.for_config is not None:
        could = any(one.can and one.operation == "mma" for one in answer.for_config.verdicts)
        return None if could else EXIT_NO
    return None


def _read_config(source: str) -> KernelConfig:
    from tilewright.cli.jsonl import MAX_LINE_BYTES, decode_object, open_stream
    from tilewright.cutlass.budget import LineError
    from tilewright.cutlass.config import parse_config
    from tilewright.errors import InputError, shown

    with open_stream(source, "--for") as stream:
        data = stream.read(MAX_LINE_BYTES + 1)
    if len(data) > MAX_LINE_BYTES:
        raise InputError(
            "--for", f"--for: {shown(source)} is longer than {MAX_LINE_BYTES:,} bytes; it takes one config."
        )
    raw = decode_object(1, data)
    if isinstance(raw, LineError):
        reason = raw.message.removeprefix("Line 1 ")
        raise InputError("--for", f"--for: {shown(source)} {reason} Give a file that holds one kernel config.")
    return parse_config(raw)
