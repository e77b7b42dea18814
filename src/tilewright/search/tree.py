"""Which mainloop of a CUTLASS tree runs a config: a search over a tree proposes what the tree holds and says where."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.cutlass.config import KernelConfig


@dataclass
class TreeCollectives:
    """The collectives under `root`, asked once for each kind of mainloop and schedule."""

    root: str
    _known: dict[tuple[str, ...], str | None] = field(default_factory=dict[tuple[str, ...], "str | None"])

    def mainloop(self, config: KernelConfig) -> str | None:
        """Policy and file:line of the mainloop that runs `config`, or None where the tree has none."""
        key = (config.arch, config.kind, config.op_class, config.a, config.b, config.schedule)
        if key not in self._known:
            from tilewright.collectives.query import collectives

            answer = collectives(self.root, config=config).for_config
            able = [one for one in (answer.verdicts if answer else ()) if one.can and one.operation == "mma"]
            self._known[key] = f"{able[0].policy} at {able[0].file}:{able[0].line}" if able else None
        return self._known[key]
