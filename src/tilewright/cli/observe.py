"""`tilewright observe`: a snapshot of a host and its server, for `plan --observe`."""

from __future__ import annotations

import sys

import click
from click.core import ParameterSource

from tilewright.cli.numbers import FiniteRange
from tilewright.cli.paths import PATH
from tilewright.report.output import Output, output_options

MAX_SECONDS = 3600.0


@click.command(
    epilog="Example: tilewright observe --seconds 30 --out snapshot.json", context_settings={"max_content_width": 100}
)
@click.option("--ssh", "host", metavar="HOST", help="Another host, through ssh; nothing is installed there.")
@click.option("--pid", type=click.IntRange(1), help="The server's process; default: the one that is found.")
@click.option("--url", metavar="URL", help="Where the server's /metrics is; default: the server's own port.")
@click.option("--seconds", type=FiniteRange(0, MAX_SECONDS), default=30.0, show_default=True, help="The window.")
@click.option("--out", "-o", type=PATH, metavar="FILE", help="Where to write the snapshot; default: stdout.")
@click.option("--force", is_flag=True, help="Replace --out where it exists.")
@click.option("--script", "as_script", is_flag=True, help="Print the collector as one script, or write it to --out.")
@output_options
def command(
    host: str | None,
    pid: int | None,
    url: str | None,
    seconds: float,
    out: str | None,
    force: bool,
    as_script: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Take a read-only snapshot of a host and its server: GPUs, links, host, engine, flags, metrics.

    Power, clocks and the server's metrics are read over the window. Keys, tokens and the environment do not leave the
    host. What a missing tool would have told is left out and named in `notes`. Where nothing can be installed:
    `tilewright observe --script | ssh HOST python3 - > snapshot.json`.
    """
    output = Output(as_json, quiet)
    from tilewright.report.write_file import check_new, write_new

    if as_script:
        from tilewright.observe.script import script

        _refuse_what_the_script_takes()
        if out is None:
            sys.stdout.write(script())
        else:
            write_new(out, script().encode(), force=force)
            output.note(f"Written: {out}")
        return
    from tilewright.observe.remote import check_url
    from tilewright.observe.snapshot import parse_snapshot
    from tilewright.observe.ssh import check_host

    check_url(url)
    if host is not None:
        check_host(host)
    if out is not None:
        check_new(out, force=force)
    raw = _collected(output, host, pid, url, seconds)
    label = f"of {host}" if host else "of this host"
    snapshot = parse_snapshot(raw, f"the snapshot {label}")
    if out is not None:
        write_new(out, raw + b"\n", force=force)
        output.note(f"Written: {out}")
    else:
        sys.stdout.buffer.write(raw + b"\n")
        sys.stdout.buffer.flush()
    for line in snapshot.notes:
        output.note(f"Not read: {line}.")


def _refuse_what_the_script_takes() -> None:
    """Raises UsageError for an option of the run itself: the script is printed now and takes them where it runs."""
    ctx = click.get_current_context()
    for name in ("host", "pid", "url", "seconds", "as_json"):
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            flag = next(item.opts[0] for item in ctx.command.params if item.name == name)
            where = "" if name in ("host", "as_json") else f"; the script takes it where it runs: python3 - {flag} ..."
            raise click.UsageError(f"{flag} does not go with --script, which only prints the collector{where}.")


def _collected(output: Output, host: str | None, pid: int | None, url: str | None, seconds: float) -> bytes:
    if seconds >= 1:
        output.note(f"Watching {host or 'this host'} for {seconds:.0f} s ...")
    if host is not None:
        from tilewright.observe.remote import remote_snapshot

        return remote_snapshot(host, seconds, pid, url)
    import msgspec

    from tilewright.observe.collector.main import collect

    return msgspec.json.encode(collect(seconds, pid, url))
