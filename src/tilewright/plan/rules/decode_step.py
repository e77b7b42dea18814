"""One decode step of the published server, taken apart: what is left for which part, and the floor of all of it."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.plan.finding import Fact, Outcome
from tilewright.plan.registry import Rule
from tilewright.plan.rules.all_reduce import BF16, count, nccl_us
from tilewright.plan.rules.gemm_limits import layer_us, published_layer
from tilewright.plan.tables import concurrency, short_context
from tilewright.plan.target import Target


def _floor_ms(target: Target) -> float | None:
    """Milliseconds to read once what one token needs: routed experts that it chooses, everything else whole.

    An indexer that this engine does not run on this GPU is not read, as in the predicted step."""
    from tilewright.serving.scenario import runs_sparse

    bandwidth = target.gpu.bandwidth("measured").value or target.gpu.bandwidth().value
    moe = target.model.moe
    if not bandwidth or moe is None:
        return None
    parts = target.memory.weights.components
    routed = sum(size for name, size in parts.items() if name.startswith("experts_"))
    unread = {"embedding"} if runs_sparse(target.model, target.engine, target.gpu) else {"embedding", "indexer"}
    rest = sum(size for name, size in parts.items() if not name.startswith("experts_") and name not in unread)
    return (routed * moe.topk / moe.experts + rest) / (bandwidth * 1e9) * 1e3


def run(target: Target) -> Iterator[Outcome]:
    table = concurrency(target)
    floor = _floor_ms(target)
    if table is None or floor is None or target.parallel.pp > 1:
        return
    speed = short_context(table).get(1)
    if not speed:
        return
    step = 1e3 / speed
    item = published_layer(target)
    layer = layer_us(item, target).get(1)
    reduce_us = nccl_us(target.parallel.tp, target.model.hidden * BF16) if target.pcie else None
    terms: list[dict[str, object]] = []
    if layer:
        layers = target.model.moe_layers
        terms.append(
            {
                "name": f"MoE layers, {layers} x {layer:.1f} us",
                "ms": round(layers * layer / 1e3, 2),
                "basis": "published",
            }
        )
    if reduce_us:
        steps = count(target)
        terms.append(
            {
                "name": f"all-reduces, {steps} x {reduce_us:.1f} us",
                "ms": round(steps * reduce_us / 1e3, 2),
                "basis": "published",
            }
        )
    known = sum(float(str(term["ms"])) for term in terms)
    terms.append(
        {
            "name": "the rest: attention, norms, routing, launches, sampling",
            "ms": round(step - known, 2),
            "basis": "modelled",
        }
    )
    yield Fact(
        "summary",
        [
            (
                30,
                f"At one request a step takes {step:.1f} ms (published); reading its bytes takes {floor:.1f}. The "
                "difference is "
                "latency: launches, all-reduces, small kernels.",
            )
        ],
    )
    yield Fact(
        "decode_step",
        {
            "tok_s": speed,
            "step_ms": round(step, 2),
            "floor_ms": round(floor, 2),
            "terms": terms,
            "source": f"packaged measurement {table.id}" + (f"; {item.id}" if item else ""),
        },
    )


RULE = Rule(id="decode_step", looks_at="one decode step taken apart", run=run)
