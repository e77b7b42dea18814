"""The patch of FlashInfer's MoE launcher, made from the tree's own text.

`moe_gemm_tma_ws_launcher.inl` spells the types of every MoE kernel in the body of one macro. Three statements of it
matter: the stage count, the mainloop that is built with it, and the kernel. The patch adds a few templates before the
macro, repeats the mainloop's builder with a second stage count, and asserts that the kernel fits. Every name and
argument that it repeats is taken from the tree; a launcher whose statements read otherwise is refused.

On other architectures, and for every kernel that fits, the second stage count is the first: all types stay the same.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Final

from tilewright.errors import TreeError, shown
from tilewright.libraries.flashinfer.decisions import LAUNCHER
from tilewright.libraries.flashinfer.layout import Layout, join

MARK: Final = "sm120_stage_count_reserve"
"""A name that only a patched launcher has."""
COUNT: Final = "StageCountThatFits"
MACRO: Final = "INSTANTIATE_TMA_WARP_SPECIALIZED_MOE_GEMM"
_MAX_LAUNCHER: Final = 4 << 20
_PACKAGE: Final = "flashinfer"

_COUNT: Final = (
    "usingStageCountAutoCarveout=cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>("
    "sizeof(typenameCollectiveEpilogue::SharedStorage))>;"
)
_MAINLOOP: Final = re.compile(
    r"usingCollectiveMainloop=typenamecutlass::gemm::collective::CollectiveBuilder<"
    r"[\w:,*]+,MmaTileShape,ClusterShape,StageCountAutoCarveout,KernelSchedule>::CollectiveOp;"
)
_KERNEL: Final = re.compile(
    r"usingGemmKernel=cutlass::gemm::kernel::GemmUniversal<(?P<shape>[\w:]+),CollectiveMainloop,CollectiveEpilogue,"
    r"void,void>;"
)
"""The statements as 0.6.2 to 0.7.4 have them, without white space, comments and line ends."""

_ARCH: Final = "cutlass/arch/arch.h"
_CAPACITY: Final = re.compile(r"\bsm120_smem_capacity_bytes\s*=")

TEMPLATES: Final = f"""\
// Shared memory of one SM120 kernel against what a block may have, in bytes. Where it does not fit, the compiler prints
// both numbers with the name of this type.
template <int Needed, int Limit>
struct Sm120SharedMemory {{
  static_assert(Needed <= Limit,
                "This SM120 kernel needs more shared memory (Needed bytes) than a block may have (Limit bytes): "
                "take a smaller CTA tile or epilogue tile, or fewer stages ({COUNT} in the launcher).");
  static constexpr bool kFits = Needed <= Limit;
}};

template <bool IsSM120, class GemmKernel>
constexpr bool sm120_shared_memory_fits() {{
  if constexpr (IsSM120) {{
    return Sm120SharedMemory<GemmKernel::SharedStorageSize,
                             cutlass::arch::sm120_smem_capacity_bytes>::kFits;
  }} else {{
    return true;
  }}
}}

// Bytes to set aside beside the epilogue before stages are counted. StageCountAutoCarveout leaves out (most of) what
// the kernel's storage takes besides: pipelines, tensor maps, scheduler, rounding. Where the kernel that it leads to
// does not fit, this is what that takes; everywhere else 0, and nothing changes.
template <bool IsSM120, class ProblemShape, class CollectiveMainloop, class CollectiveEpilogue>
constexpr int {MARK}() {{
  if constexpr (IsSM120) {{
    using Kernel = cutlass::gemm::kernel::GemmUniversal<ProblemShape, CollectiveMainloop,
                                                        CollectiveEpilogue, void, void>;
    constexpr int kNeeded = Kernel::SharedStorageSize;
    constexpr int kCounted =
        static_cast<int>(sizeof(typename CollectiveMainloop::TensorStorage) +
                         sizeof(typename CollectiveEpilogue::SharedStorage));
    return kNeeded > cutlass::arch::sm120_smem_capacity_bytes ? kNeeded - kCounted : 0;
  }} else {{
    return 0;
  }}
}}

"""


@dataclass(frozen=True)
class Patch:
    """A unified diff of one file. `strip` folders: none of it depends on where the tree lies."""

    file: str
    """The launcher, relative to the folder in which the diff applies."""
    diff: str
    before: str
    after: str


@dataclass(frozen=True)
class _Statement:
    """Lines `start` to `end` (exclusive), and their text without white space, comments and line ends."""

    start: int
    end: int
    dense: str


def _refuse(layout: Layout, path: str, why: str) -> TreeError:
    msg = (
        f"The MoE launcher of FlashInfer {layout.version} is not patched ({path}): {why}. Nothing was written; "
        "0.6.2 to 0.7.4 are known, `tilewright tactics flashinfer` says which tactics fail in any version."
    )
    return TreeError("root", msg)


def make_patch(layout: Layout) -> Patch:
    """The patch for the FlashInfer in `layout`, paths relative to the folder that holds the package (or the checkout).

    Raises:
        TreeError: the launcher or CUTLASS's header reads otherwise than the versions that are known.
    """
    path = join(layout.csrc, LAUNCHER)
    data = layout.read(path)
    if data is None:
        raise _refuse(layout, path, "there is no such file")
    if len(data) > _MAX_LAUNCHER:
        raise _refuse(layout, path, "it is larger than 4 MiB")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise _refuse(layout, path, "it is not UTF-8") from None
    if "\r" in text or "\0" in text:
        raise _refuse(layout, path, "its lines do not end as the known ones do")
    if MARK in text:
        raise _refuse(layout, path, f"it is patched already ({MARK})")
    _check_cutlass(layout)
    try:
        after = patched_text(text)
    except ValueError as stop:
        raise _refuse(layout, path, str(stop)) from None
    file = path if layout.package or not path.startswith("data/") else f"{_PACKAGE}/{path}"
    return Patch(file, unified(text, after, file), text, after)


def _check_cutlass(layout: Layout) -> None:
    path = layout.cutlass().inside(_ARCH)
    data = layout.read(path)
    if data is None or not _CAPACITY.search(data.decode("utf-8", "replace")):
        raise _refuse(layout, path, "its CUTLASS defines no sm120_smem_capacity_bytes")


def unified(before: str, after: str, file: str) -> str:
    """The diff from `before` to `after` as `git apply` and `patch -p1` take it."""
    lines = difflib.unified_diff(_lines(before), _lines(after), f"a/{file}", f"b/{file}", n=3)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(text: str) -> list[str]:
    """Lines with their ends; only a line feed ends one (`str.splitlines` knows others)."""
    parts = text.split("\n")
    return [f"{part}\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def patched_text(text: str) -> str:
    """The patched launcher.

    Raises:
        ValueError: a statement is missing, there twice, or reads otherwise; the message says which.
    """
    lines = text.split("\n")
    define, end = _macro(lines)
    body = [_code(line) for line in lines[define:end]]
    count = _statement(body, "StageCountAutoCarveout", "the stage count")
    mainloop = _statement(body, "CollectiveMainloop", "the mainloop")
    kernel = _statement(body, "GemmKernel", "the kernel")
    if count.dense != _COUNT:
        raise ValueError("its stage count is not StageCountAutoCarveout of the epilogue's storage")
    if not _MAINLOOP.fullmatch(mainloop.dense):
        raise ValueError("its mainloop is not built with that stage count in the known way")
    found = _KERNEL.fullmatch(kernel.dense)
    if found is None:
        raise ValueError("its kernel is not the known GemmUniversal")
    if not count.end <= mainloop.start < mainloop.end <= kernel.start:
        raise ValueError("its types stand in another order")
    if sum(bool(re.search(r"\bconstexpr (?:static )?bool IsSM120\b", line)) for line in body) != 1:
        raise ValueError("it does not define IsSM120 once")
    first = body[mainloop.start]
    indent = " " * (len(first) - len(first.lstrip()))
    column = _column(lines[define + mainloop.start])
    built = body[mainloop.start : mainloop.end]
    second = [
        *(line.replace("using CollectiveMainloop", "using CountedMainloop") for line in built),
        f"{indent}using {COUNT} = cutlass::gemm::collective::StageCountAutoCarveout<",
        f"{indent}    static_cast<int>(sizeof(typename CollectiveEpilogue::SharedStorage)) +",
        f"{indent}    {MARK}<IsSM120,",
        f"{indent}                              {found['shape']},",
        f"{indent}                              CountedMainloop, CollectiveEpilogue>()>;",
        *(re.sub(r"\bStageCountAutoCarveout\b", COUNT, line) for line in built),
    ]
    check = [
        f"{indent}static_assert(sm120_shared_memory_fits<IsSM120, GemmKernel>(),",
        f'{indent}              "too much shared memory: see Sm120SharedMemory<Needed, Limit>");',
    ]
    start, stop, after = define + mainloop.start, define + mainloop.end, define + kernel.end
    top = define
    while top > 0 and lines[top - 1].startswith("//"):
        top -= 1
    return "\n".join(
        [
            *lines[:top],
            *TEMPLATES.split("\n")[:-1],
            *lines[top:start],
            *_continued(second, column),
            *lines[stop:after],
            *_continued(check, column),
            *lines[after:],
        ]
    )


def _macro(lines: list[str]) -> tuple[int, int]:
    """First line of the macro's definition, and the line after its last."""
    starts = [index for index, line in enumerate(lines) if re.match(rf"#define {MACRO}\(", line)]
    if len(starts) != 1:
        raise ValueError(f"it does not define {MACRO} once")
    end = starts[0]
    while end < len(lines) and lines[end].endswith("\\"):
        end += 1
    return starts[0], end + 1


def _code(line: str) -> str:
    """`line` without the backslash that continues a macro."""
    return line.removesuffix("\\").rstrip()


def _dense(text: str) -> str:
    return "".join(re.sub(r"/\*.*?\*/", "", text).split())


def _statement(body: list[str], name: str, what: str) -> _Statement:
    """The statement `using <name> = ...;`, which begins and ends at a line of its own."""
    starts = [index for index, line in enumerate(body) if re.match(rf"\s*using {name} =", line)]
    if len(starts) != 1:
        raise ValueError(f"it does not spell {what} ({name}) once")
    end = starts[0]
    while end < len(body) and ";" not in body[end]:
        end += 1
    if end >= len(body) or not body[end].endswith(";"):
        raise ValueError(f"the statement of {what} does not end at the end of a line")
    return _Statement(starts[0], end + 1, _dense(" ".join(body[starts[0] : end + 1])))


def _column(line: str) -> int:
    """Where the backslash stands, or 0 for a line without."""
    return len(line) - 1 if line.endswith("\\") else 0


def _continued(lines: list[str], column: int) -> list[str]:
    """`lines` as lines of a macro, their backslashes under those of the tree."""
    return [f"{line.ljust(max(column, len(line) + 1))}\\" for line in lines]


def describe(patch: Patch) -> str:
    """The file and how much of it changes."""
    added = sum(line.startswith("+") and not line.startswith("+++") for line in patch.diff.splitlines())
    removed = sum(line.startswith("-") and not line.startswith("---") for line in patch.diff.splitlines())
    return f"{shown(patch.file)[1:-1]}: {added} lines more, {removed} less"
