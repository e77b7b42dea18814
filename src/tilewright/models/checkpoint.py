"""How a checkpoint quantises a model: which format each module has.

Byte models must take the checkpoint, not the model: nvidia/GLM-5-NVFP4 quantises dense MLPs and shared experts,
nvidia/GLM-5.1-NVFP4 leaves them, attention and layers 0 to 2 alone, and community checkpoints quantise routed experts
only. `format_of` decides module by module, from the lists that the checkpoint's own config holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilewright.errors import InputError, shown
from tilewright.models.formats import FORMATS, WeightFormat, weight_format
from tilewright.models.patterns import Patterns

if TYPE_CHECKING:
    from tilewright.data.figures import Figure
    from tilewright.models.inventory import Weight

__all__ = ["COMPONENTS", "Checkpoint", "Rule", "native_checkpoint", "uniform_checkpoint"]

COMPONENTS: dict[str, str] = {
    "experts_w13": "routed experts, gate and up (w13)",
    "experts_w2": "routed experts, down (w2)",
    "shared_experts": "shared experts",
    "dense_mlp": "dense MLP",
    "attention": "attention",
    "linear_attention": "linear attention",
    "mamba": "Mamba",
    "indexer": "sparse-attention indexer",
    "router": "router",
    "latent": "latent projections of the experts",
    "embedding": "embedding",
    "lm_head": "output head",
    "norms": "norms",
    "mtp": "multi-token prediction",
}
"""The parts of a model that are told apart, in the order they are shown."""

# What people call groups of components.
_GROUPS: dict[str, tuple[str, ...]] = {
    "experts": ("experts_w13", "experts_w2"),
    "routed_experts": ("experts_w13", "experts_w2"),
    "shared": ("shared_experts",),
    "dense": ("dense_mlp",),
    "mlp": ("experts_w13", "experts_w2", "shared_experts", "dense_mlp"),
    "linear": (
        "experts_w13",
        "experts_w2",
        "shared_experts",
        "dense_mlp",
        "attention",
        "linear_attention",
        "mamba",
        "indexer",
        "latent",
    ),
}


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """Modules that a checkpoint stores in one format: those that `where` matches, or those of some components.

    Both None: every linear layer that nothing else decides.
    """

    format: WeightFormat
    where: Patterns | None = None
    components: frozenset[str] | None = None

    def applies(self, weight: Weight) -> bool:
        if self.components is not None:
            return (weight.component in self.components and not weight.mtp) or (weight.mtp and "mtp" in self.components)
        if self.where is not None:
            return self.where.matches(weight.name)
        return weight.quantisable == "yes"


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """One set of weights of a model.

    `rules` are tried in order, `exclude` comes before them; what neither decides is stored as the model was trained.
    `kv_cache` is the cache format that the checkpoint asks for ("fp8", "nvfp4"), empty when it asks for none.
    """

    name: str
    method: str = "none"
    rules: tuple[Rule, ...] = ()
    exclude: Patterns = field(default_factory=lambda: Patterns((), ""))
    kv_cache: str = ""
    source: str = ""
    aliases: tuple[str, ...] = ()
    stored_gb: Figure | None = None
    """Size that somebody published, where one did."""
    has_mtp: bool = True
    """Whether multi-token-prediction layers of the model are in it."""
    experts: int = 0
    """Routed experts a layer where the checkpoint prunes the model's; 0: all of them."""
    notes: tuple[str, ...] = ()

    def format_of(self, weight: Weight, base: str) -> WeightFormat:
        """The format of one module of the model; `base` is the dtype of what is not quantised."""
        plain = FORMATS[base]
        if weight.quantisable == "never" or not self.rules:
            return plain
        # Engines and quantisation tools leave heads, routers and such alone unless their name is on the list itself.
        if weight.quantisable == "named":
            named = (rule for rule in self.rules if rule.where is not None and rule.where.names_exactly(weight.name))
            rule = next(named, None)
            return plain if rule is None or self.exclude.matches(weight.name) else rule.format
        if self.exclude.matches(weight.name):
            return plain
        rule = next((rule for rule in self.rules if rule.applies(weight)), None)
        return plain if rule is None else rule.format

    @property
    def formats(self) -> tuple[str, ...]:
        """Names of the quantised formats in use, in rule order."""
        return tuple(dict.fromkeys(rule.format.name for rule in self.rules))


def uniform_checkpoint(fmt: str, components: Iterable[str], *, name: str = "", **more: Any) -> Checkpoint:
    """A checkpoint that stores the named components (or "experts", "mlp", "linear") in one format and leaves the rest.

    Raises InputError for an unknown format or component.
    """
    chosen: set[str] = set()
    for item in components:
        if item not in COMPONENTS and item not in _GROUPS:
            known = ", ".join([*_GROUPS, *COMPONENTS])
            raise InputError("quantized", f"No component is called {shown(item)}; known: {known}.")
        chosen.update(_GROUPS.get(item, (item,)))
    rule = Rule(weight_format(fmt), components=frozenset(chosen))
    return Checkpoint(name=name or fmt, method="uniform", rules=(rule,) if chosen else (), **more)


def native_checkpoint(inner: Mapping[str, Any], outer: Mapping[str, Any], where: str) -> Checkpoint:
    """The checkpoint that a config.json describes: quantised as its quantization_config says, or as trained."""
    from tilewright.models.quantisation import parse_quantisation

    for raw in (outer, inner):
        if raw.get("quantization_config") is not None:
            return parse_quantisation(
                raw["quantization_config"], where, expert_dtype=inner.get("expert_dtype"), key="quantization_config"
            )
    return Checkpoint(name="as trained", source=where)
