"""`tilewright fit --compare OLD NEW --library ROOT`: every kernel of a library under two CUTLASS releases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from tilewright.cli.exit_status import EXIT_NO
from tilewright.report.output import Output

if TYPE_CHECKING:
    from tilewright.cutlass.config import KernelConfig
    from tilewright.libraries.flashinfer.model import Op

__all__ = ["releases", "upgrade"]

ARCHS = ("sm120", "sm121")
"""Architectures whose kernels are read out of a FlashInfer."""
OPS: Final[tuple[Op, ...]] = ("moe", "gemm")
"""Kernels that are CUTLASS C++, and so change with its release; CuTe DSL kernels bring their own."""

Kernels = list[tuple[str, "KernelConfig | None"]]


def releases(versions: tuple[str, str]) -> tuple[str, str]:
    """Two releases as the user wrote them, each checked to be one that the model knows."""
    from tilewright.cutlass.versions import KNOWN, nearest_known
    from tilewright.errors import InputError, shown

    old, new = (version.removeprefix("v") for version in versions)
    for version in (old, new):
        if version not in KNOWN:
            near = ", ".join(nearest_known(version))
            raise InputError("--compare", f"--compare: CUTLASS {shown(version)} was not read; the nearest are: {near}.")
    return old, new


def upgrade(
    library: str, given: dict[str, Any], versions: tuple[str, str] | None, source: str | None, check: bool, out: Output
) -> int | None:
    """Answer for every kernel of the FlashInfer under `library`; with `check` 1 where one no longer runs."""
    from tilewright.cutlass.compare import compare_all
    from tilewright.report.compare_text import show_library

    if versions is None:
        raise click.UsageError("--library goes with --compare OLD NEW, the two releases to compare its kernels on.")
    if source is not None or set(given) - {"arch"}:
        raise click.UsageError("--library brings its own configs; of the config flags it takes --arch alone.")
    old, new = releases(versions)
    release, arch, kernels = _flashinfer(library, str(given.get("arch", "sm120")))
    found = compare_all("flashinfer", release, arch, kernels, old, new)
    if out.json:
        out.document(found)
    else:
        show_library(found, out)
    return EXIT_NO if check and found.lost else None


def _flashinfer(root: str, arch: str) -> tuple[str, str, Kernels]:
    """(FlashInfer's version, architecture, every kernel that it compiles for it as (name, config or None)).

    `root` is a wheel, a site-packages or a checkout; it is parsed, never imported or run.
    """
    from tilewright.arch import arch_name
    from tilewright.collectives.tree import open_tree
    from tilewright.cutlass.config import parse_config
    from tilewright.errors import InputError, shown
    from tilewright.libraries.flashinfer.tactics import read_report

    name = arch_name(arch)
    if name not in ARCHS:
        msg = f"--arch: the kernels of {shown(arch)} are not read out of a library; legal are {' and '.join(ARCHS)}."
        raise InputError("arch", msg)
    kernels: Kernels = []
    version = ""
    with open_tree(root) as tree:
        for op in OPS:
            report = read_report(tree, op, name)
            version = report.library_version
            kernels += [
                (tactic.name, None if tactic.config is None else parse_config(tactic.config))
                for tactic in report.tactics
            ]
    return version, name, kernels
