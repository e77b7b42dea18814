"""A `moe` question about a model's layer: the model's name in place of the layer's sizes."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tilewright.errors import InputError
from tilewright.models.names import resolve_model
from tilewright.models.records import Model
from tilewright.serving.kernels import MOE_DTYPES, NOT_GATED, MoeShape
from tilewright.serving.profile import LayerKind, profile
from tilewright.serving.questions import CheckpointSpec
from tilewright.serving.scenario import stored_model
from tilewright.serving.step import moe_shape

__all__ = ["with_layer_of_model"]

_SIZES: Final = ("hidden", "inter", "topk", "experts")


def with_layer_of_model(raw: dict[str, Any]) -> dict[str, Any]:
    """The question with the sizes, and unless it says one the dtype, of the routed experts of its `model`.

    `checkpoint` chooses among the model's checkpoints, as in `decode`. Of several kinds of expert layers the most
    frequent is meant. Raises InputError for a model without experts, for sizes beside the model, and for a format that
    no kernel table has.
    """
    name, spec = raw["model"], raw.get("checkpoint")
    given = [field for field in _SIZES if raw.get(field) is not None]
    if given:
        raise InputError(given[0], f"{given[0]} comes with the model; drop it, or the model.")
    if not isinstance(name, str):
        raise InputError("model", "model must be a name or a folder; 'tilewright models' lists the known ones.")
    model, checkpoint = stored_model(resolve_model(name), _spec(spec))
    kinds = [(kind.count, shape) for kind in profile(model, checkpoint).kinds if (shape := _shape(model, kind))]
    if not kinds:
        raise InputError("model", f"{model.name} has no routed experts; ask for its GEMMs (op gemm) instead.")
    _, shape = max(kinds, key=lambda item: item[0])
    _check_cut(model.name, "tp", raw.get("tp"), shape.inter, "columns of an expert")
    _check_cut(model.name, "ep", raw.get("ep"), shape.experts, "experts")
    left = {key: value for key, value in raw.items() if key not in ("model", "checkpoint")}
    sizes: dict[str, Any] = {name: getattr(shape, name) for name in _SIZES}
    if left.get("dtype") is None:
        dtype = MOE_DTYPES.get(shape.format.name)
        if dtype is None:
            legal = ", ".join(sorted(set(MOE_DTYPES.values())))
            raise InputError(
                "dtype", f"No kernel table has {model.name}'s experts ({shape.format.name}); give a dtype: {legal}."
            )
        sizes["dtype"] = dtype
    if not shape.gated and left.get("backend") is None:
        sizes["backend"] = NOT_GATED
    return {**left, **sizes}


def _check_cut(model: str, field: str, ways: object, extent: int, what: str) -> None:
    """Raises InputError where `ways` does not divide `extent`; what is no positive number is refused elsewhere."""
    if isinstance(ways, int) and not isinstance(ways, bool) and ways > 0 and extent % ways:
        msg = f"{field} {ways:,} does not divide the {extent:,} {what} of {model}; give a divisor."
        raise InputError(field, msg)


def _shape(model: Model, kind: LayerKind) -> MoeShape | None:
    return moe_shape(kind, model.moe.topk) if model.moe is not None else None


def _spec(value: Any) -> CheckpointSpec | str | None:
    if value is None or isinstance(value, str):
        return value
    try:
        return msgspec.convert(value, CheckpointSpec)
    except msgspec.ValidationError:
        raise InputError("checkpoint", "checkpoint must be a name, or an object with format and quantized.") from None
