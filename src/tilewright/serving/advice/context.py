"""What every rule of the advice looks at, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

from tilewright.data.figures import read_packaged
from tilewright.hardware.gpu import Gpu
from tilewright.libraries.engine_flags.concepts import concept, find, name_of
from tilewright.libraries.engine_flags.model import Flag, FlagSet
from tilewright.models.records import Model
from tilewright.serving.advice.answer import Goal, Ground, Left, Suggestion
from tilewright.serving.advice.present import Present
from tilewright.serving.advice.state import Load, State
from tilewright.serving.readable_cache import SM12X

__all__ = ["SM12X", "Context", "Found", "ground", "over_pcie"]


@dataclass(frozen=True)
class Context:
    """`now` is the server without the advice (a launch line, or the engine's defaults), `load` what it is for."""

    flags: FlagSet
    now: State
    load: Load
    goal: Goal
    present: Present | None = None

    @property
    def engine(self) -> str:
        return self.flags.engine

    @property
    def model(self) -> Model:
        return self.now.scenario.model

    @property
    def gpu(self) -> Gpu:
        return self.now.scenario.gpu

    @property
    def named(self) -> str:
        """The engine with its version."""
        title = {"sglang": "SGLang", "vllm": "vLLM"}[self.engine]
        return f"{title} {self.flags.version}" if self.flags.version else title

    @property
    def at(self) -> str:
        """The load's number of requests in words."""
        return "1 request" if self.load.concurrency == 1 else f"{self.load.concurrency:,} requests"

    def flag(self, ident: str) -> Flag | None:
        return find(self.flags, ident)

    def name(self, ident: str) -> str | None:
        return name_of(self.flags, ident)

    def given(self, ident: str) -> str | None:
        """What the launch line gives for a concept: `--flag value`; None where it gives nothing."""
        if self.present is None or ident not in self.present.text:
            return None
        return f"{self.present.spelt[ident]} {self.present.text[ident]}".strip()

    def title(self, ident: str) -> str:
        return concept(ident).title


@dataclass
class Found:
    """What rules found so far: `state` is the server with every flag that goes into the launch line."""

    state: State
    suggestions: list[Suggestion] = field(default_factory=lambda: list[Suggestion]())
    left: list[Left] = field(default_factory=lambda: list[Left]())
    environment: list[str] = field(default_factory=lambda: list[str]())
    notes: list[str] = field(default_factory=lambda: list[str]())


@lru_cache(maxsize=1)
def _evidence() -> dict[str, dict[str, Any]]:
    listed = cast("list[dict[str, Any]]", read_packaged("evidence.json")["evidence"])
    return {item["id"]: item for item in listed}


def ground(*idents: str) -> list[Ground]:
    """Published findings by their ids in `data/evidence.json`."""
    return [Ground(item["kind"], item["text"], item["source"]) for item in (_evidence()[ident] for ident in idents)]


def over_pcie(gpu: Gpu) -> bool:
    """Whether the GPUs of one host talk over PCIe: no NVLink, as far as the catalogue knows."""
    return not gpu.value("interconnect_nvlink_gbs_bidir") and gpu.key != "gb10"
