"""`tilewright gpus`: the GPU catalogue, one entry of it, or the GPUs of this machine."""

from __future__ import annotations

from typing import Any

import click

from tilewright.hardware.catalogue import catalogue
from tilewright.hardware.fields import FIELDS, GROUPS, format_value
from tilewright.hardware.gpu import Gpu
from tilewright.hardware.names import resolve_gpu
from tilewright.report.figures import SourceList, figure_json, figure_rows, print_notes
from tilewright.report.output import Output, output_options

SCHEMA = "tilewright/gpus/1"
GIB = 1 << 30

# Columns of the table of all GPUs: heading, figure, divisor.
_COLUMNS = (
    ("SMs", "sm_count", 1),
    ("memory GB", "memory_gb", 1),
    ("GB/s", "memory_bandwidth_gbs", 1),
    ("FP4 TF", "tflops_fp4_dense", 1),
    ("FP8 TF", "tflops_fp8_fp32acc_dense", 1),
    ("BF16 TF", "tflops_bf16_fp32acc_dense", 1),
    ("smem/block B", "smem_optin_max_per_block_bytes", 1),
    ("W", "tdp_w", 1),
)


def _label(key: str) -> str:
    return FIELDS[key].label if key in FIELDS else key


def gpus_document(name: str | None) -> dict[str, Any]:
    """The document of the GPU that `name` means, or of all."""
    chosen = [resolve_gpu(name)] if name is not None else list(catalogue())
    return {"schema": SCHEMA, "gpus": [_gpu_json(gpu) for gpu in chosen]}


def _gpu_json(gpu: Gpu) -> dict[str, Any]:
    return {
        "key": gpu.key,
        "name": gpu.name,
        "arch": gpu.arch,
        "compute_capability": gpu.compute_capability,
        "figures": {
            key: figure_json(figure, FIELDS[key].unit if key in FIELDS else "") for key, figure in gpu.figures.items()
        },
    }


def _cell(value: object) -> str:
    if value is None:
        return "unknown"
    if value == 0:
        return "none"
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def _print_all(out: Output) -> None:
    rows = [[gpu.key, gpu.arch, *(_cell(gpu.value(key)) for _, key, _ in _COLUMNS)] for gpu in catalogue()]
    columns = ["gpu", "arch", *(heading for heading, _, _ in _COLUMNS)]
    out.table(columns, rows, right=range(2, len(columns)))
    out.line()
    out.line("TF: dense TFLOPS, sums in FP32. none: the tensor cores have no such type. Bandwidths are published ones.")
    out.line("'tilewright gpus NAME' shows every figure with its kind and its source.")


def _print_one(out: Output, gpu: Gpu) -> None:
    out.heading(f"{gpu.name}  ({gpu.key}, {gpu.arch})")
    sources = SourceList()
    figures = {key: gpu.get(key) for key in FIELDS if key in gpu.figures}
    for group in GROUPS:
        part = {key: figure for key, figure in figures.items() if FIELDS[key].group == group}
        if not part:
            continue
        out.line()
        out.heading(group)
        # A series of measurements would make its table too wide to read: it gets lines of its own below.
        series = {key: part.pop(key) for key in [*part] if isinstance(part[key].value, dict)}
        out.table(["figure", "value", "kind", "source"], figure_rows(part, _label, format_value, sources), right=[1])
        for key, figure in series.items():
            unit = FIELDS[key].unit
            out.line(f"{_label(key)} ({unit}, {figure.kind} {sources.mark(figure.sources)}):")
            out.line(f"  {format_value(key, figure.value)}")
    print_notes(out, figures, _label, format_value, sources)
    sources.print(out)


def _live_json(out: Output) -> None:
    from tilewright.hardware.live import differences, read_live

    out.document(
        {
            "schema": SCHEMA,
            "live": [
                {
                    **_gpu_json(live.gpu),
                    "index": live.index,
                    "entry": live.entry.key if live.entry else None,
                    "unresolved": live.unresolved or None,
                    "driver": live.driver,
                    "cuda": live.cuda,
                    "now": dict(live.now),
                    "differences": [
                        {
                            "figure": item.key,
                            "live": item.live,
                            "catalogue": item.catalogue,
                            "relative": item.relative,
                            "rounding": item.rounding,
                        }
                        for item in differences(live)
                    ],
                    "notes": list(live.notes),
                }
                for live in read_live()
            ],
        }
    )


def _now_text(now: dict[str, Any]) -> list[str]:
    parts: list[str] = []
    if now.get("power_draw_w") is not None:
        limit = now.get("power_limit_w")
        parts.append(f"drawing {now['power_draw_w']:,.0f} W" + (f" of {limit:,.0f} W" if limit is not None else ""))
    if now.get("sm_clock_mhz") is not None:
        parts.append(f"SM clock {now['sm_clock_mhz']:,} MHz, memory clock {_cell(now.get('memory_clock_mhz'))} MHz")
    if now.get("memory_used_bytes") is not None:
        parts.append(f"{now['memory_used_bytes'] / GIB:,.1f} GiB of memory in use")
    if now.get("pcie_gen") is not None:
        parts.append(
            f"PCIe gen {now['pcie_gen']} x{_cell(now.get('pcie_lanes'))} at this moment (idle links step down)"
        )
    return parts


def _print_live(out: Output) -> None:
    from tilewright.hardware.live import differences, read_live

    for i, live in enumerate(read_live()):
        if i:
            out.line()
        out.heading(f"GPU {live.index}: {live.name}")
        known = f"catalogue entry {live.entry.key}" if live.entry else f"not in the catalogue: {live.unresolved}"
        out.line(f"  {known}")
        out.line(f"  driver {live.driver or 'unknown'}, CUDA up to {live.cuda or 'unknown'}")
        for text in [*_now_text(dict(live.now)), *live.notes]:
            out.line(f"  {text}")
        out.line()
        rows = [
            [_label(key), format_value(key, figure.value), figure.source]
            for key, figure in sorted(live.gpu.figures.items(), key=lambda item: list(FIELDS).index(item[0]))
        ]
        out.table(["figure", "measured", "read from"], rows, right=[1])
        if live.entry is None:
            continue
        found = differences(live)
        out.line()
        if not found:
            out.line("No difference from the catalogue.")
            continue
        out.heading("Differences from the catalogue")
        out.table(
            ["figure", "this machine", "catalogue", "", ""],
            [
                [
                    "power limit, set now" if item.key == "power_limit_w" else _label(item.key),
                    format_value("tdp_w" if item.key == "power_limit_w" else item.key, item.live),
                    format_value("tdp_w" if item.key == "power_limit_w" else item.key, item.catalogue),
                    "" if item.relative is None else f"{item.relative:+.1%}",
                    "within nameplate rounding" if item.rounding else "",
                ]
                for item in found
            ],
            right=[1, 2, 3],
        )


@click.command(epilog="Example: tilewright gpus rtx-pro-6000-server")
@click.argument("name", required=False)
@click.option(
    "--live",
    is_flag=True,
    help="The GPUs of this machine (needs the extra 'gpu'), and where they differ from the catalogue.",
)
@output_options
def command(name: str | None, live: bool, as_json: bool, quiet: bool) -> None:
    """GPUs and their limits, each figure with its kind and its source.

    NAME is a key, a product name, the name that torch or nvidia-smi reports, or an aiconfigurator system. Without it,
    all are listed.
    """
    out = Output(json=as_json, quiet=quiet)
    if live and name is not None:
        raise click.UsageError("Give a NAME to look up the catalogue or --live to read this machine, not both.")
    if live:
        (_live_json if as_json else _print_live)(out)
        return
    if as_json:
        out.document(gpus_document(name))
    elif name is None:
        _print_all(out)
    else:
        _print_one(out, resolve_gpu(name))
