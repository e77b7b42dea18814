"""`tilewright verify`: does this GPU agree with `fit`? Build, initialise, launch, compare; one bundle to share."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from tilewright.cli.compiler_options import compiler_options, cores, keep_folder
from tilewright.cli.config_options import config_options
from tilewright.cli.exit_status import EXIT_NO
from tilewright.cli.paths import PATH
from tilewright.report.output import Output, output_options

if TYPE_CHECKING:
    from tilewright.probe.headers import Headers
    from tilewright.verify.device import Device
    from tilewright.verify.model import Case, Verification
    from tilewright.verify.run import Plan

MAX_KERNELS = 500
"""More kernels than this in one run (hours of compiling) are taken for a mistake."""


@click.command(
    epilog="Example: tilewright verify --root flashinfer_python-0.6.2-py3-none-any.whl --arch sm120 --kind grouped "
    "--a nvfp4 --tile 128x256x128 --fusion finalize --build-only"
)
@config_options
@compiler_options
@click.option("--from", "source", type=PATH, metavar="FILE", help="Read one JSON config a line ('-': stdin).")
@click.option("--library", metavar="DIR_OR_WHEEL", help="Verify the tactics of this FlashInfer, from its own CUTLASS.")
@click.option(
    "--op", type=click.Choice(["moe", "gemm"]), default="moe", show_default=True, help="--library: which kernels."
)
@click.option("--only", metavar="TEXT", help="--library, --from: only configs whose id (tactic name) holds TEXT.")
@click.option(
    "--device", "index", type=click.IntRange(0, 255), default=0, show_default=True, help="GPU, as CUDA counts."
)
@click.option("--build-only", is_flag=True, help="Build, compare sizes, run nothing: needs no GPU.")
@click.option(
    "--build-timeout",
    type=click.IntRange(1, 86_400),
    default=1800,
    show_default=True,
    metavar="S",
    help="Of one build.",
)
@click.option(
    "--timeout", "run_timeout_s", type=click.IntRange(1, 3600), default=60, show_default=True, metavar="S",
    help="A run's: what hangs longer is ended and recorded.",
)  # fmt: skip
@click.option("--out", type=PATH, metavar="FILE", help="The bundle; default: tilewright-verify-<UTC time>.json here.")
@click.option("--force", is_flag=True, help="Replace FILE where it exists.")
@click.option("--check", is_flag=True, help="Exit 1 when GPU and fit disagree on any config.")
@output_options
def command(
    given: dict[str, Any],
    roots: tuple[str, ...],
    extensions: str | None,
    source: str | None,
    library: str | None,
    op: str,
    only: str | None,
    index: int,
    build_only: bool,
    nvcc: str | None,
    jobs: int | None,
    build_timeout: int,
    run_timeout_s: int,
    out: str | None,
    force: bool,
    keep: str | None,
    no_cache: bool,
    check: bool,
    as_json: bool,
    quiet: bool,
) -> int | None:
    """Hold fit against this machine's GPU: build each config's real kernel, launch it, compare status and bytes.

    Every kernel runs in a process of its own: one that hangs or faults is recorded, and the next one runs. What comes
    out is one JSON bundle to share; it names no host, user or path. Nothing is sent anywhere.

    Give configs by flags, --from FILE, or --library (FlashInfer's tactics). Works on GPUs since Hopper.
    """
    from tilewright.probe.compiler import find_nvcc
    from tilewright.probe.headers import open_headers
    from tilewright.probe.rounds import Settings
    from tilewright.report.probe_text import Progress
    from tilewright.report.verify_text import show, show_case
    from tilewright.report.write_file import check_new, write_new
    from tilewright.verify.device import find_device
    from tilewright.verify.run import verify

    _check_usage(given, roots, source, library, only, force=force, out=out)
    bundle = out or (None if as_json else f"tilewright-verify-{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%MZ}.json")
    if bundle is not None:
        check_new(bundle, force=force)
    output = Output(as_json, quiet)
    device = None if build_only else find_device(index)
    trees, scatter = open_headers(roots or ((library,) if library else ()), extensions)
    plans, named = _plans(given, source, library, op, only, trees, device)
    settings = Settings(
        compiler=find_nvcc(nvcc),
        extensions=scatter,
        jobs=jobs or cores(),
        timeout_s=build_timeout,
        keep=keep_folder(keep),
        use_cache=not no_cache,
    )
    progress = Progress(output)

    def settled(number: int, case: Case) -> None:
        progress.end()
        if len(plans) > 1:
            output.note(show_case(number, len(plans), case))

    result = verify(
        plans, settings, device, run_timeout_s=run_timeout_s, library=named, progress=progress.update, on_case=settled
    )
    progress.end()
    if bundle is not None:
        write_new(bundle, msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n", force=force)
    if as_json:
        output.document(result)
    else:
        show(result, output)
        output.line(f"Written: {bundle}")
    return EXIT_NO if check and _disagrees(result) else None


def _disagrees(result: Verification) -> bool:
    return result.summary.differ > 0


def _check_usage(
    given: dict[str, Any],
    roots: tuple[str, ...],
    source: str | None,
    library: str | None,
    only: str | None,
    *,
    force: bool,
    out: str | None,
) -> None:
    if sum((bool(given), source is not None, library is not None)) != 1:
        raise click.UsageError(
            "Give config flags (--arch, --a, --tile, ...), or --from FILE, or --library: one of them."
        )
    if not roots and library is None:
        raise click.UsageError("Missing option '--root': the CUTLASS tree (a folder or a wheel) to build from.")
    if only is not None and given:
        raise click.UsageError("--only belongs to --library and --from.")
    if force and out is None:
        raise click.UsageError("--force belongs to --out.")


def _plans(
    given: dict[str, Any],
    source: str | None,
    library: str | None,
    op: str,
    only: str | None,
    trees: list[Headers],
    device: Device | None,
) -> tuple[list[Plan], str | None]:
    """(what to build, name and version of the library that it comes from)."""
    from tilewright.errors import InputError

    named = None
    if library is not None:
        raws, named = _tactics(library, op, device)
    elif source is not None:
        raws = _read(source)
    else:
        raws = [given]
    if only is not None:
        raws = [raw for raw in raws if only in str(raw.get("id", ""))]
    if not raws:
        raise InputError("configs", "There is no config to verify: nothing was read, or --only leaves nothing.")
    if len(raws) > MAX_KERNELS:
        msg = f"{len(raws)} configs are more than {MAX_KERNELS} kernels to build; take fewer, with --only say."
        raise InputError("configs", msg)
    return [_plan(raw, trees, device) for raw in raws], named


def _plan(raw: dict[str, Any], trees: list[Headers], device: Device | None) -> Plan:
    from tilewright.cutlass.config import parse_config
    from tilewright.probe.headers import pick_headers
    from tilewright.verify.run import Plan

    if raw.get("arch") is None and device is not None and device.arch is not None:
        raw = {**raw, "arch": device.arch}
    config = parse_config(raw)
    headers = pick_headers(trees, config.cutlass if raw.get("cutlass") is not None else None)
    return Plan(msgspec.structs.replace(config, cutlass=headers.version), headers)


def _read(source: str) -> list[dict[str, Any]]:
    """The configs of a stream. A bundle is of whole runs: the first bad line ends it, before anything is built."""
    from tilewright.cli.jsonl import decode_object, open_stream, read_lines
    from tilewright.cutlass.config import parse_config
    from tilewright.errors import InputError

    raws: list[dict[str, Any]] = []
    with open_stream(source) as stream:
        for number, data in read_lines(stream):
            raw = decode_object(number, data) if isinstance(data, bytes) else data
            if not isinstance(raw, dict):
                raise InputError("--from", raw.message)
            if "arch" in raw:
                try:
                    parse_config(raw)
                except InputError as error:
                    raise InputError("--from", f"Line {number}: {error.msg}") from None
            raws.append(raw)
            if len(raws) > MAX_KERNELS:
                break
    return raws


def _tactics(library: str, op: str, device: Device | None) -> tuple[list[dict[str, Any]], str]:
    """The configs of a library's tactics for this GPU (SM120 where nothing is run), and the library's name."""
    from tilewright.collectives.tree import open_tree
    from tilewright.libraries.flashinfer.tactics import read_report

    arch = device.arch if device is not None and device.arch is not None else "sm120"
    with open_tree(library) as tree:
        report = read_report(tree, "gemm" if op == "gemm" else "moe", arch)
    raws = [
        {**tactic.config, "id": tactic.name, "cutlass": None} for tactic in report.tactics if tactic.config is not None
    ]
    return raws, f"{report.library} {report.library_version}"
