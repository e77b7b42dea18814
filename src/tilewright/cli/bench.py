"""`tilewright bench`: GEMMs, expert layers, copies and all-reduces measured on this machine's GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tilewright.cli.numbers import FiniteRange
from tilewright.cli.paths import PATH
from tilewright.errors import InputError, shown
from tilewright.number_lists import whole_numbers
from tilewright.report.output import Output, output_options

if TYPE_CHECKING:
    from tilewright.bench.document import BenchDocument
    from tilewright.bench.problem import Problem

F = TypeVar("F", bound=Callable[..., Any])
MAX_PROBLEMS = 256


def _common(function: F) -> F:
    """The options of every measurement."""
    options = [
        click.option("--backend", "backends", metavar="NAME", multiple=True, help="Only this one; may be repeated."),
        click.option("--device", type=int, default=0, show_default=True, help="Which GPU, as CUDA numbers them."),
        click.option(
            "--store", type=PATH, metavar="FILE", help="The store; default $TILEWRIGHT_STORE, else your data folder."
        ),
        click.option("--no-store", is_flag=True, help="Keep nothing."),
        click.option(
            "--time-limit", type=FiniteRange(1, 86400), default=120.0, show_default=True, metavar="SECONDS",
            help="A measurement that takes longer is ended and kept as a timeout.",
        ),
        click.option(
            "--budget", type=FiniteRange(0.01, 3600), default=2.0, show_default=True, metavar="SECONDS",
            help="Time for the samples of one figure; quiet ones take less.",
        ),
    ]  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return output_options(function)


def _numbers(name: str, text: str) -> list[int]:
    """Whole numbers like 1,16,64, each once."""
    found = whole_numbers(text)
    if found is None or len(found) > MAX_PROBLEMS:
        raise InputError(name, f"--{name} takes whole numbers like 1,16,64, not {shown(text)}.")
    return list(dict.fromkeys(found))


def _sizes(text: str) -> list[int]:
    """Byte counts like 4096,64MB,1GiB."""
    units = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
    found: list[int] = []
    for part in text.split(","):
        digits = part.strip().rstrip("BKMGIbkmgi")
        unit = part.strip()[len(digits) :].upper()
        if not (digits.isascii() and digits.isdigit()) or unit not in units or len(digits) > 18:
            raise InputError("bytes", f"--bytes takes sizes like 4096,64MB,1GiB, not {shown(part)}.")
        found.append(int(digits) * units[unit])
    return list(dict.fromkeys(found))


def _measure(problems: Sequence[Problem], common: dict[str, Any], *, collective: bool = False) -> None:
    from tilewright.bench.device import read_device
    from tilewright.bench.problem import check
    from tilewright.bench.run import Options, bench, bench_allreduce

    if len(problems) > MAX_PROBLEMS:
        raise InputError("sizes", f"That is {len(problems):,} problems; at most {MAX_PROBLEMS} are measured at once.")
    checked: list[Any] = [check(problem) for problem in problems]
    device = read_device(common["device"])
    out = Output(common["as_json"], common["quiet"])
    options = Options(
        backends=common["backends"], store=common["store"], keep=not common["no_store"],
        limit_s=common["time_limit"], budget_s=common["budget"],
    )  # fmt: skip
    run = bench_allreduce if collective else bench
    document = run(checked, device, options, out.note)
    _print(document, out)


def _print(document: BenchDocument, out: Output) -> None:
    from tilewright.report.bench_text import show

    if out.json:
        out.document(document)
    else:
        show(document, out)


@click.group(
    epilog="Example: tilewright bench moe --model GLM-5 --tp 8 --tokens 1,16,64",
    context_settings={"max_content_width": 100},
)
def command() -> None:
    """Measure on this machine's GPU: answers checked first, cold L2, medians with their spread.

    Every result goes to the store that `tilewright results` reads. Needs PyTorch: pip install 'tilewright[bench]'.
    """


@command.command("gemm", epilog="Example: tilewright bench gemm --m 1,64,4096 --n 8192 --k 8192 --dtype bf16,fp8")
@click.option("--m", "m", required=True, metavar="M,...", help="Rows of activations (tokens).")
@click.option("--n", "n", type=int, required=True, help="Output features.")
@click.option("--k", "k", type=int, required=True, help="Input features.")
@click.option("--dtype", default="bf16", show_default=True, metavar="F,...", help="bf16, fp8, nvfp4, nvfp4_w4a4.")
@_common
def gemm(m: str, n: int, k: int, dtype: str, **common: Any) -> None:
    """One matrix product: x[m, k] times w[n, k] transposed, bf16 out.

    nvfp4 is that of the weights, with bf16 activations; nvfp4_w4a4 of both.
    """
    from tilewright.bench.problem import GemmProblem

    formats = dict.fromkeys(item.strip() for item in dtype.split(","))
    _measure([GemmProblem(m=rows, n=n, k=k, dtype=name) for name in formats for rows in _numbers("m", m)], common)


@command.command("moe", epilog="Example: tilewright bench moe --model GLM-5 --tp 8 --tokens 1,16,64")
@click.option("--model", metavar="NAME", help="Take the layer of this model (`tilewright models` lists them).")
@click.option("--tp", type=int, default=1, show_default=True, help="With --model: tensor-parallel ways.")
@click.option("--ep", type=int, default=1, show_default=True, help="With --model: expert-parallel ways.")
@click.option("--hidden", type=int, help="Hidden size.")
@click.option("--inter", type=int, help="Intermediate size of one expert, of this GPU's shard.")
@click.option("--experts", type=int, help="Experts on this GPU.")
@click.option("--topk", type=int, help="Experts a token goes to.")
@click.option("--tokens", required=True, metavar="T,...", help="Token counts.")
@click.option("--dtype", default="nvfp4", show_default=True, metavar="F,...", help="bf16, nvfp4, nvfp4_w4a4.")
@click.option("--distribution", default="uniform", show_default=True, help="uniform, or one_expert: all to the same.")
@_common
def moe(
    model: str | None,
    tp: int,
    ep: int,
    hidden: int | None,
    inter: int | None,
    experts: int | None,
    topk: int | None,
    tokens: str,
    dtype: str,
    distribution: str,
    **common: Any,
) -> None:
    """One mixture-of-experts layer: routing, gate and up, SiLU, down, weighted sum.

    nvfp4 is that of the weights, with bf16 activations; nvfp4_w4a4 quantises them too, within the layer.
    """
    from tilewright.bench.problem import MoeProblem

    counts = _numbers("tokens", tokens)
    formats = list(dict.fromkeys(item.strip() for item in dtype.split(",")))
    sizes = {"hidden": hidden, "inter": inter, "experts": experts, "topk": topk}
    problems: list[Problem] = []
    if model is not None:
        from tilewright.bench.shapes import moe_shard
        from tilewright.models.names import resolve_model

        given = [name for name, value in sizes.items() if value is not None]
        if given:
            raise InputError(given[0], f"--{given[0]} comes with the model; drop it, or --model.")
        found = resolve_model(model)
        for name in formats:
            some, note = moe_shard(found, counts, tp=tp, ep=ep, dtype=name, distribution=distribution)
            problems += some
            if note and name == formats[0]:
                Output(common["as_json"], common["quiet"]).note(f"{found.name}, {note}.")
    else:
        absent = [name for name, value in sizes.items() if value is None]
        if absent:
            raise InputError(absent[0], f"Give --model, or the sizes: --{absent[0]} is missing.")
        if tp != 1 or ep != 1:
            raise InputError("tp", "--tp and --ep go with --model; sizes are those of one GPU's shard.")
        problems += [
            MoeProblem(
                tokens=count, hidden=hidden or 0, inter=inter or 0, experts=experts or 0, topk=topk or 0, dtype=name,
                distribution=distribution,
            )
            for name in formats
            for count in counts
        ]  # fmt: skip
    _measure(problems, common)


@command.command("copy", epilog="Example: tilewright bench copy --bytes 16MB,256MB,4GB")
@click.option("--bytes", "sizes", default="4GB", show_default=True, metavar="SIZE,...", help="4096, 64MB, 1GiB.")
@_common
def copy(sizes: str, **common: Any) -> None:
    """What memory gives: bytes copied (read and written), and bytes read alone."""
    from tilewright.bench.problem import CopyProblem, ReadProblem

    found = _sizes(sizes)
    _measure([kind(bytes=size) for size in found for kind in (CopyProblem, ReadProblem)], common)


MESSAGES = "256,4KiB,16KiB,64KiB,256KiB,1MiB,4MiB,16MiB,64MiB"
"""From a barrier's worth to a prefill chunk's activations; decode steps send 10 KB to 1 MB."""


@command.command("allreduce", epilog="Example: tilewright bench allreduce --gpus 2,4,8 --bytes 16KiB,1MiB,64MiB")
@click.option("--gpus", required=True, metavar="N,...", help="How many GPUs, the first ones that CUDA shows.")
@click.option("--bytes", "sizes", default=MESSAGES, show_default=True, metavar="SIZE,...", help="4096, 64MB, 1GiB.")
@_common
def allreduce(gpus: str, sizes: str, **common: Any) -> None:
    """A sum over GPUs through NCCL, one process a GPU, beside what `predict` says of it."""
    from tilewright.bench.problem import AllreduceProblem

    if common["device"]:
        msg = "--device chooses one GPU, but an all-reduce takes the first --gpus (reorder by CUDA_VISIBLE_DEVICES)."
        raise InputError("device", msg)
    counts, found = _numbers("gpus", gpus), _sizes(sizes)
    _measure([AllreduceProblem(bytes=size, gpus=count) for count in counts for size in found], common, collective=True)
