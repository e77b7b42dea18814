"""The process that answers the calls: one JSON object a line in, one a line out, one after the other.

It is started by `server.py` and killed by it where a call takes too long, so nothing here has to be interruptible. It
may read the roots only (`access.guard`), and may not use more than `MEMORY_BYTES`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, BinaryIO, Final

import msgspec

from tilewright.errors import InputError, TilewrightError, shown
from tilewright.mcp_.access import Access, guard

__all__ = ["Answer", "Call", "Settings", "main"]

MEMORY_BYTES: Final = 8 << 30
"""Address space of the worker: the largest answers here take some hundred MB."""

_FORGOTTEN: Final = ("VLLM_TUNED_CONFIG_FOLDER", "SGLANG_MOE_CONFIG_DIR", "TILEWRIGHT_STORE", "HF_HOME", "HF_HUB_CACHE")
"""Variables that would send a call to files nobody named."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What the worker is started with."""

    roots: list[str]
    write: str | None = None
    answer_bytes: int


class Call(msgspec.Struct, frozen=True):
    """One call."""

    tool: str
    arguments: dict[str, Any]


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Its answer: the document, or one sentence that says what was wrong."""

    document: msgspec.Raw = msgspec.Raw(b"null")
    error: str | None = None


def answer(call: Call, access: Access, limit: int) -> Answer:
    """The document of one call; whatever goes wrong is a sentence, and no exception leaves this function."""
    from tilewright.mcp_.tools import TOOLS, confined, inputs_of

    tool = TOOLS.get(call.tool)
    if tool is None:
        return Answer(error=f"There is no tool {shown(call.tool)}; the tools are: {', '.join(TOOLS)}.")
    try:
        arguments = inputs_of(tool.name, access.write is not None).check(call.arguments)
        document = msgspec.json.encode(tool.run(confined(tool, arguments, access)))
    except TilewrightError as error:
        return Answer(error=error.msg)
    except RecursionError:
        return Answer(error="The input is nested too deeply to be read.")
    except MemoryError:
        return Answer(error="The call needs more memory than a call may use; ask for less at a time.")
    except OSError as error:
        name = f" ({error.filename})" if error.filename else ""
        return Answer(error=f"The system refused{name}: {error.strerror or error}.")
    except Exception as error:  # as the command line does: a defect of ours is said to be one, without a traceback
        if type(error).__module__.startswith("click"):
            return Answer(error=str(getattr(error, "message", error)))
        return Answer(error=f"Internal error, which is a defect of tilewright: {type(error).__name__}: {error}.")
    if len(document) > limit:
        msg = (
            f"The answer takes {len(document):,} bytes, and it may take {limit:,} (--max-answer-bytes): narrow it "
            f"with the arguments of {tool.name}, or use the command 'tilewright {tool.document} --json'."
        )
        return Answer(error=msg)
    return Answer(document=msgspec.Raw(document))


def serve(settings: Settings, calls: BinaryIO, answers: BinaryIO) -> None:
    """Answer calls until there are no more."""
    access = Access.of(tuple(settings.roots), settings.write)
    for name in _FORGOTTEN:
        os.environ.pop(name, None)
    os.environ["HF_HUB_CACHE"] = os.devnull  # no model is looked up in a cache outside of the roots
    os.chdir(access.roots[0] if access.roots else "/")
    _limit_memory()
    guard(access)
    decode = msgspec.json.Decoder(Call).decode
    for line in calls:
        try:
            made = answer(decode(line), access, settings.answer_bytes)
        except (msgspec.DecodeError, ValueError) as error:
            made = Answer(error=f"The call could not be read: {error}.")
        answers.write(msgspec.json.encode(made) + b"\n")
        answers.flush()


def _limit_memory() -> None:
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(hard, MEMORY_BYTES)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def main(argument: str) -> None:
    """Serve on stdin and stdout; what anything else prints goes to stderr."""
    settings = msgspec.json.decode(argument, type=Settings)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError, InputError):
        serve(settings, sys.stdin.buffer, answers)


if __name__ == "__main__":
    main(sys.argv[1])
