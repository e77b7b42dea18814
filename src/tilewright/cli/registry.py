"""The commands, their one-line helps and the module that each lives in.

A command's module is imported when the command is called, and not before: `tilewright --help` reads this table
only. A new command is one line here and one file beside this one.
"""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    module: str
    """Module that holds the `click.Command`, which is its attribute `command`."""
    help: str
    """One line for `tilewright --help`."""


COMMANDS: dict[str, Command] = {
    "plan": Command("tilewright.cli.plan", "One ranked, evidence-backed optimisation plan for a model on your GPUs."),
    "fit": Command("tilewright.cli.fit", "Shared memory, stages and legality of a CUTLASS kernel config, to the byte."),
    "tactics": Command("tilewright.cli.tactics", "Every kernel config that a library compiles, each with its verdict."),
    "fix": Command("tilewright.cli.fix", "A patch or blocklist for the library tactics that can never run."),
    "collectives": Command("tilewright.cli.collectives", "What the CUTLASS headers on this machine can do."),
    "predict": Command("tilewright.cli.predict", "How long a kernel, a collective or a model takes, and why."),
    "calibrate": Command("tilewright.cli.calibrate", "Fit the kernel models to measured rows, yours or published."),
    "probe": Command("tilewright.cli.probe", "Compile the real types: sizes, registers, spills. Needs nvcc, no GPU."),
    "verify": Command("tilewright.cli.verify", "Build, launch and check kernels on this GPU; one bundle to share."),
    "inspect": Command("tilewright.cli.inspect", "What a GPU binary or wheel holds, and on which GPUs it runs."),
    "gpus": Command("tilewright.cli.gpus", "GPUs and their limits, each figure with its source."),
    "models": Command(
        "tilewright.cli.models",
        "Models, their shapes and quantised checkpoints, each figure with its source.",
    ),
    "observe": Command("tilewright.cli.observe", "A read-only snapshot of a host and its server, for a plan."),
    "layout": Command("tilewright.cli.layout", "How to spread a model over GPUs: what fits and how fast."),
    "validate": Command("tilewright.cli.validate", "The serving model against published tables, worst first."),
    "flags": Command("tilewright.cli.flags", "Flags an installed SGLang or vLLM has; does a launch command parse."),
    "explain": Command("tilewright.cli.explain", "What a log says: causes, exact arithmetic, fixes; unknown errors."),
    "record": Command("tilewright.cli.record", "One experiment into the journal: what was changed, what it gave."),
    "journal": Command("tilewright.cli.journal", "What was tried, what it gave, what came of it."),
    "sweep": Command("tilewright.cli.sweep", "The best server flags, by starting and measuring real servers."),
    "bench": Command("tilewright.cli.bench", "Measure GEMMs, expert layers, copies, all-reduces on this GPU."),
    "tune": Command("tilewright.cli.tune", "The fastest tile of a fused-MoE kernel, searched on this machine's GPUs."),
    "results": Command("tilewright.cli.results", "What was measured: the result store listed, compared, exported."),
    "mcp": Command("tilewright.cli.mcp", "These commands as tools for an assistant (MCP, on stdin and stdout)."),
}
