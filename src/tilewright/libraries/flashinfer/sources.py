"""The kernels that FlashInfer's build functions instantiate: translation units read down to CUTLASS's builder types."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tilewright.libraries.cpp_source.kernels import Finding, Kernel, KernelFinder, Root
from tilewright.libraries.cpp_source.resolve import Resolver
from tilewright.libraries.cpp_source.tokens import NotRead, Token
from tilewright.libraries.cpp_source.types import Env
from tilewright.libraries.cpp_source.unit import Headers
from tilewright.libraries.flashinfer.build import BuildModule, Unit
from tilewright.libraries.flashinfer.layout import Layout, join
from tilewright.libraries.flashinfer.target import SM120, Target
from tilewright.libraries.flashinfer.world import Operation

ASSUMED_DEFINES: Final = {
    "CUDA_VERSION": "13000",
    "__CUDACC_VER_MAJOR__": "13",
    "__CUDACC_VER_MINOR__": "0",
    "CUTLASS_ARCH_MMA_SM100_SUPPORTED": "1",
    "CUTLASS_ARCH_MMA_SM120_SUPPORTED": "1",
    "CUTLASS_ARCH_MMA_SM121_SUPPORTED": "1",
}
"""What compiling for SM120 with a toolkit that can (CUDA 13.0 here) defines: cuda.h, nvcc, and CUTLASS's
include/cutlass/arch/config.h."""

_LAUNCHER: Final = "/moe_gemm_tma_ws_launcher.inl"
"""The file that `fix` patches."""
_USING_EPILOGUE: Final = "using namespace cutlass::epilogue;"
_EPILOGUE_TAGS: Final = "cutlass/epilogue/dispatch_policy.hpp"
_STRUCT: Final = re.compile(r"^struct (\w+)", re.M)
_INCLUDE: Final = re.compile(r"^\s*#\s*include\s+.*$", re.M)


@dataclass(frozen=True)
class Instantiation:
    """One kernel that one unit instantiates, or the reason why it cannot be read (`problem`), or why the library leaves
    it out (`filtered`)."""

    module: BuildModule
    unit: Unit
    operation: Operation | None
    kernel: Kernel | None
    problem: Finding | None
    filtered: Finding | None
    several: bool
    """Whether its root makes several kernels."""


class SourceReader:
    """Reads units of one FlashInfer. Headers are read once for all units that include the same."""

    def __init__(self, layout: Layout, target: Target = SM120) -> None:
        self.layout, self.target = layout, target
        self.patched: set[str] = set()
        """Launchers that carry the patch of `fix`: the stage counts of their kernels are not CUTLASS's own."""
        self._texts: dict[str, str | None] = {}
        self._shared: dict[tuple[object, ...], tuple[Headers, KernelFinder]] = {}

    def text(self, path: str) -> str | None:
        """The file `path` as text, or None."""
        if path not in self._texts:
            data = self.layout.read(path)
            self._texts[path] = None if data is None else self._as_shipped(path, data.decode("utf-8", "replace"))
        return self._texts[path]

    def _as_shipped(self, path: str, text: str) -> str:
        """`text`, but for a launcher that carries `fix`'s patch: that as it was before, line for line."""
        if not path.endswith(_LAUNCHER):
            return text
        from tilewright.libraries.flashinfer.fix_patched import without_patch

        before = without_patch(text)
        if before is None:
            return text
        self.patched.add(path)
        return before

    def instantiations(self, module: BuildModule, wanted: re.Pattern[str] | None = None) -> Iterator[Instantiation]:
        """Every kernel of `module`, in the order in which the library makes them.

        `wanted` keeps the units whose text it matches.
        """
        for unit in module.units:
            if unit.path.endswith((".cu", ".cuh", ".cpp")) and (wanted is None or wanted.search(unit.text)):
                yield from self._unit(module, unit)

    def _headers(self, module: BuildModule, unit: Unit) -> tuple[KernelFinder, list[Token]]:
        includes = tuple(_INCLUDE.findall(unit.text))
        key = (includes, module.flags, module.include_paths)
        shared = self._shared.get(key)
        body = _INCLUDE.sub("", unit.text)
        if shared is None:
            folders = (
                *module.include_paths,
                self.layout.csrc,
                self.layout.include,
                join(self.layout.csrc, "nv_internal"),
            )
            headers = Headers(self.text, folders, {**ASSUMED_DEFINES, **self.target.defines, **module.defines})
            headers.add("\n".join(includes), unit.path)
            shared = headers, KernelFinder(Resolver(headers, self._epilogue_tags()))
            self._shared[key] = shared
        headers, finder = shared
        return finder, headers.preprocessor.process(body, unit.path)

    def _epilogue_tags(self) -> dict[str, tuple[str, ...]]:
        """Epilogue tags by their bare names, where launchers say `using namespace cutlass::epilogue`: those that the
        vendored CUTLASS declares."""
        if self.target.arch in ("sm120", "sm121") or not any(
            _USING_EPILOGUE in (text or "") for text in self._texts.values()
        ):
            return {}
        declared = self.layout.read(f"{self.layout.cutlass().include}/{_EPILOGUE_TAGS}") or b""
        names = _STRUCT.findall(declared.decode("utf-8", "replace"))
        return dict.fromkeys(names, ("cutlass", "epilogue"))

    def _unit(self, module: BuildModule, unit: Unit) -> Iterator[Instantiation]:
        try:
            finder, tokens = self._headers(module, unit)
            finder.resolver.refill()
            roots = finder.roots(tokens)
        except NotRead as stop:
            whole = Root(unit.path, unit.path, {}, (), Env(), unit.path, 1, unit.path, 1, is_macro=False)
            finding = Finding(whole, stop.why, stop.file or unit.path, stop.line or 1)
            yield Instantiation(module, unit, None, None, finding, None, several=False)
            return
        operations = _by_order(unit, len(roots))
        for root, operation in zip(roots, operations, strict=True):
            finder.resolver.refill()
            try:
                found = finder.kernels(root)
            except NotRead as stop:
                finding = Finding(root, stop.why, stop.file or root.defined_file, stop.line or root.defined_line)
                yield Instantiation(module, unit, operation, None, finding, None, several=False)
                continue
            several = len(found.kernels) > 1
            for kernel in found.kernels:
                yield Instantiation(module, unit, operation, kernel, None, None, several)
            if not found.kernels:
                for problem in found.failures[:1]:
                    yield Instantiation(module, unit, operation, None, problem, None, several=False)
                if not found.failures:
                    for filtered in found.filtered[:1]:
                        yield Instantiation(module, unit, operation, None, None, filtered, several=False)


def _by_order(unit: Unit, count: int) -> list[Operation | None]:
    """The operations behind the unit's roots: both are in the order of the text."""
    if len(unit.operations) == count:
        return list(unit.operations)
    return [None] * count
