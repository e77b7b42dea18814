"""`tilewright fit`: one config explained, or a stream of them answered."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from tilewright.cli.config_options import config_options
from tilewright.cli.exit_status import EXIT_NO
from tilewright.cli.fit_search import given_problem, refuse_problem, search_options, search_run
from tilewright.cli.fit_upgrade import releases, upgrade
from tilewright.cli.jsonl import answer_stream, open_stream
from tilewright.cli.paths import PATH
from tilewright.cli.triton_options import TritonFlags, answer_tile, run_tile, triton_options
from tilewright.report.output import Output, bar, output_options

if TYPE_CHECKING:
    from tilewright.cutlass.budget import Budget
    from tilewright.cutlass.compare import Comparison
    from tilewright.cutlass.config import KernelConfig


@click.command(
    epilog="Example: tilewright fit --cutlass 4.2.1 --arch sm120 --kind grouped --a nvfp4 --tile 128x256x128 "
    "--fusion finalize"
)
@config_options
@click.option(
    "--from", "source", type=PATH, metavar="FILE", help="Read one JSON config a line ('-': stdin), answer one a line."
)
@click.option("--brief", is_flag=True, help="Leave out fields, cause and fixes.")
@click.option("--check", is_flag=True, help="Exit 1 when a config does not fit.")
@click.option("--root", metavar="DIR_OR_WHEEL", help="Take the rules of the CUTLASS tree found there, by its content.")
@click.option("--compare", nargs=2, metavar="OLD NEW", help="What changes between two CUTLASS releases.")
@click.option(
    "--library",
    metavar="DIR_OR_WHEEL",
    help="With --compare: every kernel of this FlashInfer (of --arch, default sm120), instead of one config.",
)
@search_options
@triton_options
@output_options
def command(
    given: dict[str, Any],
    source: str | None,
    brief: bool,
    check: bool,
    root: str | None,
    compare: tuple[str, str] | None,
    library: str | None,
    search: bool,
    tile: TritonFlags,
    as_json: bool,
    quiet: bool,
    **parameters: Any,
) -> int | None:
    """Shared memory, stages and legality of a CUTLASS kernel config, exact to the byte.

    Every byte is derived from how the types are laid out, and held against compiled rows; `tilewright probe` compiles
    the same config. A config needs at least --arch, --a and --tile. With --search the problem is given instead, and
    the legal configs are ranked by what the GPU can use: --search --gpu GPU --a nvfp4 --m 16 --n 4096 --k 6144.
    With --kernel it is a Triton tile of vLLM or SGLang: --kernel sglang-fused-moe --gpu gb10 --dtype fp8_w8a8
    --tile 128x256x128 --stages 4 --num-warps 8. Both kinds may stand in one --from file.
    """
    out = Output(as_json, quiet)
    problem = given_problem(parameters)
    if library is not None:
        if search or tile.raw:
            raise click.UsageError("--library goes with --compare OLD NEW; drop --search and --kernel.")
        refuse_problem(problem)
        return upgrade(library, given, compare, source, check, out)
    if tile.raw:
        if search or source is not None or compare:
            raise click.UsageError("--kernel is one Triton tile; drop --search, --from and --compare.")
        gpu = problem.pop("gpu", None)
        refuse_problem(problem)
        if root is not None and not tile.compile:
            raise click.UsageError("--root of a Triton tile goes with --compile: its bytes need no tree.")
        return run_tile(tile, given, gpu, root, brief, check, out)
    if tile.compile and source is None:
        raise click.UsageError(
            "--compile is for Triton tiles: add --kernel, or --from; `tilewright probe` compiles CUTLASS."
        )
    if search:
        if source is not None or compare:
            raise click.UsageError("--search ranks configs of its own; drop --from and --compare.")
        rules = _Rules(root, out)
        return search_run(rules.fixed(given), problem, root, rules.unknown, check, out)
    refuse_problem(problem)
    if compare and (root is not None or "cutlass" in given):
        raise click.UsageError(f"--compare names both releases; drop {'--root' if root is not None else '--cutlass'}.")
    if source is not None:
        if given:
            raise click.UsageError("--from takes the configs from the file; drop the other config flags.")
        rules = _Rules(None if tile.compile else root, out)
        return _stream(source, brief, check, rules, compare, out, tile, root)
    rules = _Rules(root, out)
    config = rules.config(given)
    if compare:
        from tilewright.report.compare_text import show_comparison

        comparison = _comparison(config, compare)
        if as_json:
            out.document(comparison)
        else:
            show_comparison(config, comparison, out)
        return EXIT_NO if check and comparison.new_status != "fits" else None
    budget = rules.fit(config, brief)
    if as_json:
        out.document(budget)
    else:
        from tilewright.report.budget_text import show

        show(config, budget, out)
    return EXIT_NO if check and budget.status != "fits" else None


class _Rules:
    """Whose rules hold: the `cutlass` key of each config, or those of the tree under `--root`.

    A tree is known by the content of its headers, not by the version that it reports. One that is not known answers
    `unsupported` and names the nearest known one (DESIGN 4.2).
    """

    def __init__(self, root: str | None, out: Output) -> None:
        self.ruleset: str | None = None
        self.unknown: str | None = None
        if root is not None:
            self._read(root, out)

    def _read(self, root: str, out: Output) -> None:
        from tilewright.collectives.known import identify, nearest_known
        from tilewright.collectives.tree import open_tree

        with open_tree(root) as tree:
            found = tree.cutlass_roots()
            known = identify(found[0])
            if known is None:
                near = nearest_known(found[0])
                at = found[0].include or "."
                self.unknown = (
                    f"The CUTLASS tree at {at} reports {found[0].version}, but its content is none that "
                    f"was read; the nearest is {near.tree.name}, from which {near.differing} files differ "
                    f"({', '.join(near.examples[:3])}). Take that one's rules with --cutlass {near.tree.ruleset}, or "
                    "compile the types: tilewright probe --root."
                )
                return
            several = f" (one of {len(found)} trees)" if found[1:] else ""
            where = f"{known.name} at {found[0].include or '.'}{several}"
            out.note(f"CUTLASS tree: {where}; rules of {known.ruleset}.")
            self.ruleset = known.ruleset

    def fixed(self, raw: dict[str, Any]) -> dict[str, Any]:
        """The keys of a config, with the release of the tree."""
        from tilewright.errors import ConfigError

        if self.ruleset is None:
            return raw
        if raw.get("cutlass") not in (None, self.ruleset):
            msg = f"cutlass: {raw['cutlass']!r} is not what --root holds ({self.ruleset}); give one of the two."
            raise ConfigError("cutlass", msg)
        return {**raw, "cutlass": self.ruleset}

    def config(self, raw: dict[str, Any]) -> KernelConfig:
        from tilewright.cutlass.config import parse_config

        return parse_config(self.fixed(raw))

    def fit(self, config: KernelConfig, brief: bool) -> Budget:
        from tilewright.cutlass.budget import Budget
        from tilewright.cutlass.fit import LIMITS, fit

        if self.unknown is not None:
            return Budget(id=config.id, status="unsupported", limit_bytes=LIMITS[config.arch], cause=self.unknown)
        return fit(config, brief=brief)


def _comparison(config: KernelConfig, versions: tuple[str, str]) -> Comparison:
    """`config` under two releases, each checked to be one that the model knows."""
    from tilewright.cutlass.compare import compare

    return compare(config, *releases(versions))


def _stream(
    source: str,
    brief: bool,
    check: bool,
    rules: _Rules,
    compare: tuple[str, str] | None,
    out: Output,
    tile: TritonFlags,
    root: str | None,
) -> int | None:
    failing = 0

    def answer(raw: dict[str, Any]) -> Any:
        nonlocal failing
        if "kernel" in raw:
            verdict = answer_tile(raw, tile, root, brief)
            failing += verdict.status != "fits"
            if out.json:
                return verdict
            from tilewright.report.triton_text import tile_line

            out.line(tile_line(verdict))
            return None
        if compare:
            comparison = _comparison(rules.config(raw), compare)
            failing += comparison.new_status != "fits"
            if not out.json:
                from tilewright.report.compare_text import changes_line

                out.line(f"{comparison.verdict:<8} {comparison.id or '-'}  {changes_line(comparison)}".rstrip())
            return comparison
        budget = rules.fit(rules.config(raw), brief)
        if budget.status != "fits":
            failing += 1
        if out.json:
            return budget
        size = "-" if budget.smem_bytes is None else f"{budget.smem_bytes:,}"
        meter = bar(budget.smem_bytes or 0, budget.limit_bytes or 1, 20)
        first = budget.rules[0] if budget.rules else (budget.cause or "")
        note = "" if budget.status == "fits" else first.split(". ")[0]
        out.line(f"{budget.status:<11} {size:>9}  {meter}  {budget.id or '-'}  {note}".rstrip())
        return None

    with open_stream(source) as stream:
        if out.json:
            count, refused = answer_stream(stream, answer, sys.stdout.buffer)
        else:
            count, refused = _plain(stream, answer, out)
    out.note(f"Configs: {count}; not fitting: {failing}; lines refused: {refused}.")
    return EXIT_NO if check and (failing or refused) else None


def _plain(stream: Any, answer: Any, out: Output) -> tuple[int, int]:
    """The stream for a reader: a line of text for each config."""
    from tilewright.cli.jsonl import decode_object, read_lines
    from tilewright.cutlass.budget import LineError
    from tilewright.errors import InputError

    count = refused = 0
    for number, data in read_lines(stream):
        count += 1
        raw = decode_object(number, data) if isinstance(data, bytes) else data
        message = raw.message if isinstance(raw, LineError) else None
        if not isinstance(raw, LineError):
            try:
                answer(raw)
            except InputError as error:
                message = error.msg
        if message is not None:
            refused += 1
            out.line(f"{'error':<11} {'-':>9}  line {number}: {message}")
    return count, refused
