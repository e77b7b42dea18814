"""Words of a launch line that are not what they seem in this version or on this GPU."""

from __future__ import annotations

from tilewright.libraries.engine_flags.launch import Remark
from tilewright.libraries.engine_flags.model import Flag, FlagSet
from tilewright.libraries.engine_flags.renames import history, successor
from tilewright.serving.advice.answer import Judged
from tilewright.serving.advice.context import Context
from tilewright.serving.advice.kernels import limits

__all__ = ["judge"]


def judge(context: Context) -> list[Judged]:
    """What is refused, renamed, gone, deprecated, without effect, or not for this GPU; worst first."""
    present = context.present
    if present is None:
        return []
    flags = context.flags
    out: list[Judged] = []
    for remark in present.check.remarks:
        made = _of_remark(flags, remark)
        if made is not None:
            out.append(made)
    for name, value in present.check.given.items():
        flag = flags.get(name)
        if flag is not None:
            out.extend(_of_flag(context, flag, value))
    order = ("refused", "renamed", "gone", "not yet", "not for this GPU", "no effect", "deprecated", "default")
    return sorted(out, key=lambda item: order.index(item.verdict))


def _of_remark(flags: FlagSet, remark: Remark) -> Judged | None:
    if remark.level == "note" or remark.message.endswith("is required."):
        return None
    place = remark.place or ""
    if remark.level == "warning":
        if "deprecated" in remark.message:
            new = successor(flags, remark.word)
            return Judged(remark.word, "deprecated", remark.message, _words(new), place)
        return Judged(remark.word, "no effect", remark.message, (), place)
    word = remark.word.split("=")[0]
    new = successor(flags, word) if flags.get(word) is None else None
    if new is None and not remark.message.startswith("No flag"):
        return Judged(remark.word, "refused", remark.message, (), place)
    known = history(flags.engine, word).versions
    title = f"{flags.engine} {flags.version}" if flags.version else flags.engine
    if new is not None:
        return Judged(word, "renamed", f"{title} calls it {' '.join(_words(new))}.", _words(new), new.source)
    if not known:
        near = f" Nearest: {', '.join(remark.nearest)}." if remark.nearest else ""
        return Judged(word, "refused", f"No packaged release of {flags.engine} has it.{near}", ())
    from tilewright.versions import precedes

    if precedes(flags.version, known[0]):
        return Judged(word, "not yet", f"{title} does not have it; {known[0]} does.", ())
    return Judged(word, "gone", f"{title} does not have it any more; {known[-1]} did.", ())


def _words(new: object) -> tuple[str, ...]:
    from tilewright.libraries.engine_flags.renames import Successor

    if not isinstance(new, Successor):
        return ()
    return (new.name, new.value) if new.value else (new.name,)


def _of_flag(context: Context, flag: Flag, value: str) -> list[Judged]:
    out: list[Judged] = []
    arch = context.gpu.arch
    for limit in limits(context.engine):
        if limit.flag not in flag.names or arch in limit.serves:
            continue
        values = None if limit.values is None else {item.lower() for item in limit.values}
        if values is None or value.lower() in values:
            word = limit.flag if values is None else f"{limit.flag} {value}"
            text = f"{arch.upper()} is not served: {limit.otherwise}."
            out.append(Judged(word, "not for this GPU", text, (), limit.source))
    plain = flag.default is not None and flag.default_text is None and value and str(flag.default) == value
    if plain and flag.kind == "value" and not flag.required:
        out.append(Judged(f"{flag.names[0]} {value}", "default", "What this version does by itself.", ()))
    return out
