"""Write docs/reference/ from the code: python tools/build_docs.py [FOLDER].

Commands and options come from click, documents from the types behind `report/schema.py`, the Python API from
`tilewright.__all__`, log messages and plan rules from their registries, errors from `errors.py`, tools of `mcp` from
its table. Nothing is written by hand there; a test checks that the folder is up to date.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
import types
import typing
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import msgspec

import tilewright
from tilewright.cli.registry import COMMANDS
from tilewright.report.schema import NAMES, document_types

MADE = "<!-- Made by tools/build_docs.py from the code; do not edit. -->"


def cell(text: str) -> str:
    """`text` as one cell of a Markdown table."""
    return " ".join(plain(text).split()).replace("|", "\\|")


def plain(doc: str | None) -> str:
    """A docstring as Markdown text: without indentation, and without what points into the design."""
    return re.sub(r"\s*\(DESIGN [\d.]+[^)]*\)", "", inspect.cleandoc(doc or ""))


class Verbatim(str):
    """A string that is written without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def signature_of(function: Any) -> str:
    """The signature as it stands in the source."""
    found = inspect.signature(function)
    parameters = [
        item
        if item.annotation is inspect.Parameter.empty
        else item.replace(annotation=Verbatim(str(item.annotation).strip("\"'")))
        for item in found.parameters.values()
    ]
    return str(found.replace(parameters=parameters, return_annotation=Verbatim(found.return_annotation)))


# -- commands -----------------------------------------------------------------------------------------------------


def option_names(option: click.Option) -> str:
    """The option as it is typed, with what follows it."""
    names = ", ".join(option.opts)
    if option.secondary_opts:
        names += " / " + ", ".join(option.secondary_opts)
    if option.is_flag or option.count:
        return f"`{names}`"
    kind = option.type
    if option.metavar:
        value = option.metavar
    elif isinstance(kind, click.Choice):
        value = "|".join(str(choice) for choice in kind.choices)
    else:
        value = {"integer": "N", "integer range": "N", "float": "X", "float range": "X"}.get(kind.name, "TEXT")
    return f"`{names} {value}`"


def option_notes(option: click.Option) -> str:
    """Help, whether it is needed, repeatable, its default and range."""
    notes = [option.help or ""]
    if option.required:
        notes.append("Required.")
    if option.multiple:
        notes.append("Repeatable.")
    low, high = (getattr(option.type, name, None) for name in ("min", "max"))
    if low is not None or high is not None:
        span = f"{low:,} to {high:,}" if low is not None and high is not None else ""
        notes.append(f"{span or (f'At least {low:,}' if low is not None else f'At most {high:,}')}.")
    default = option.default
    if isinstance(default, str | int | float) and not isinstance(default, bool) and default != "":
        notes.append(f"Default: `{default}`.")
    return cell(" ".join(note for note in notes if note))


def command_lines(path: str, command: click.Command, level: int) -> list[str]:
    """One command as Markdown: usage, text, arguments, options, example, subcommands."""
    lines = [f"{'#' * level} {path}", ""]
    arguments = [item for item in command.params if isinstance(item, click.Argument)]
    words = [item.metavar or str(item.name).upper() for item in arguments]
    shown = [
        f"[{word}]{'...' if item.nargs == -1 else ''}" if not item.required else word
        for word, item in zip(words, arguments, strict=True)
    ]
    group = isinstance(command, click.Group)
    lines += [f"`{' '.join([path, *shown, 'COMMAND' if group else '[OPTIONS]'])}`", ""]
    lines += [plain(command.help), ""]
    options = [item for item in command.params if isinstance(item, click.Option) and not item.hidden]
    if options:
        lines += ["| option | |", "|---|---|"]
        lines += [f"| {cell(option_names(item))} | {option_notes(item)} |" for item in options]
        lines.append("")
    if command.epilog:
        example = command.epilog.partition("Example: ")[2].strip()
        lines += [f"Example: `{example}`", ""]
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            lines += command_lines(f"{path} {name}", command.commands[name], level + 1)
    return lines


def commands() -> dict[str, str]:
    """One page a command, and the page that lists them."""
    pages: dict[str, str] = {}
    index = [
        "# Commands", "", MADE, "", "Every command takes `--help`, and `--json` for one document on stdout and nothing "
        "else (JSON Lines for streams); notes go to stderr, `--quiet` leaves them out. "
        "Exit codes: [errors.md](errors.md).",
        "", "| command | |", "|---|---|",
    ]  # fmt: skip
    for name, entry in COMMANDS.items():
        command: click.Command = import_module(entry.module).command
        index.append(f"| [{name}](commands/{name}.md) | {cell(entry.help)} |")
        lines = command_lines(f"tilewright {name}", command, 1)
        pages[f"commands/{name}.md"] = "\n".join([lines[0], "", MADE, *lines[1:]])
    pages["commands.md"] = "\n".join(index)
    return pages


# -- documents ----------------------------------------------------------------------------------------------------


def field_texts(kind: type[Any]) -> dict[str, str]:
    """Field -> the docstring below it in the source, of the class and of those it inherits from."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        try:
            source = inspect.getsource(base)
        except (OSError, TypeError):
            continue
        tree = ast.parse(textwrap.dedent(source))
        body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
        for item, after in zip(body, [*body[1:], None], strict=True):
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                said = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                found[item.target.id] = str(after.value.value) if said else ""
    return found


def type_text(hint: Any) -> str:
    """A type as a reader writes it: aliases resolved, literals as their values."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint is type(None):
        return "null"
    if origin is typing.Literal:
        return " | ".join(repr(part).replace("'", '"') for part in parts)
    if origin is typing.Annotated:
        return type_text(parts[0])
    if origin in (typing.Union, types.UnionType):
        return " | ".join(type_text(part) for part in parts)
    if origin is not None:
        inside = ", ".join("..." if part is Ellipsis else type_text(part) for part in parts)
        return f"{origin.__name__}[{inside}]"
    return getattr(hint, "__name__", str(hint))


def structs_in(kind: Any, seen: dict[str, type[Any]]) -> None:
    """Every struct that `kind` mentions, into `seen` by name, in the order of their first mention."""
    if isinstance(kind, type) and (issubclass(kind, msgspec.Struct) or hasattr(kind, "__dataclass_fields__")):
        if kind.__name__ in seen:
            return
        seen[kind.__name__] = kind
        for hint in typing.get_type_hints(kind).values():
            structs_in(hint, seen)
    for part in typing.get_args(kind):
        structs_in(part, seen)


def struct_lines(kind: type[Any], level: int) -> list[str]:
    """A struct as a heading, its docstring and a table of its keys."""
    lines = [f"{'#' * level} {kind.__name__}", ""]
    doc = plain(kind.__doc__)
    lines += [doc, ""] if doc and not doc.startswith(f"{kind.__name__}(") else []
    texts = field_texts(kind)
    names = list(getattr(kind, "__struct_fields__", ()) or getattr(kind, "__dataclass_fields__", ()))
    if names:
        encoded = dict(zip(names, getattr(kind, "__struct_encode_fields__", names), strict=True))
        hints = typing.get_type_hints(kind)
        lines += ["| key | type | |", "|---|---|---|"]
        for name in names:
            lines.append(f"| `{encoded[name]}` | `{cell(type_text(hints[name]))}` | {cell(texts.get(name, ''))} |")
        lines.append("")
    return lines


def documents() -> dict[str, str]:
    """One page a document, and the page that lists them."""
    pages: dict[str, str] = {}
    index = [
        "# Documents", "", MADE, "", "What `--json` prints, one page a document. The same as JSON Schema: "
        "[../schema](../schema). `\"schema\"` is in each; `null` means absent or unknown.", "",
        "| document | |", "|---|---|",
    ]  # fmt: skip
    for name in NAMES:
        kinds = document_types(name)
        first = plain(kinds[0].__doc__).split("\n\n")[0]
        index.append(f"| [tilewright/{name}/1](documents/{name}.md) | {cell(first)} |")
        lines = [f"# tilewright/{name}/1", "", MADE, ""]
        if kinds[1:]:
            lines += [f"One of: {', '.join(kind.__name__ for kind in kinds)}.", ""]
        seen: dict[str, type[Any]] = {}
        for kind in kinds:
            structs_in(kind, seen)
        for kind in seen.values():
            lines += struct_lines(kind, 2)
        pages[f"documents/{name}.md"] = "\n".join(lines)
    pages["documents.md"] = "\n".join(index)
    return pages


# -- the rest -----------------------------------------------------------------------------------------------------


def python_api() -> str:
    """The public names of `tilewright`."""
    lines = ["# Python", "", MADE, "", plain(tilewright.__doc__), ""]
    for name in tilewright.__all__:
        item: Any = getattr(tilewright, name)
        if name == "__version__":
            continue
        if isinstance(item, types.ModuleType):  # plan: the package that can be called
            item = import_module("tilewright.plan.make").plan
        if inspect.isclass(item):
            if issubclass(item, Exception):
                continue
            lines += struct_lines(item, 2)
        else:
            lines += [f"## {name}", "", "```python", f"tilewright.{name}{signature_of(item)}", "```", ""]
            lines += [plain(item.__doc__), ""]
            if name == "plan":
                inputs = import_module("tilewright.plan.make").make_target
                lines += ["```python", f"make_target{signature_of(inputs)}", "```", ""]
    lines += ["Errors: [errors.md](errors.md).", ""]
    return "\n".join(lines)


def errors() -> str:
    """Exit codes and exceptions."""
    module = import_module("tilewright.errors")
    lines = [
        "# Exit codes and errors", "", MADE, "", "| exit code | |", "|---|---|", "| 0 | Done. |",
        "| 1 | The answer to `--check` is no. |", "| 2 | Bad input; one sentence on stderr says what to give. |",
        "| 3 | A missing optional part; the sentence names the extra that brings it. |",
        "| 130 | Stopped by Ctrl-C; in general 128 + the number of the signal that ended it. |", "",
        "A kernel that does not fit is no error but a verdict. `TILEWRIGHT_DEBUG=1` shows the traceback of an error.",
        "", "| exception | exit code | |", "|---|---|---|",
    ]  # fmt: skip
    for name in module.__all__:
        kind: Any = getattr(module, name)
        if inspect.isclass(kind):
            lines.append(f"| `tilewright.{name}` | {kind.exit_code} | {cell(plain(kind.__doc__))} |")
    return "\n".join(lines) + "\n"


def log_messages() -> str:
    """The messages that `explain` knows."""
    from tilewright.diagnose.rules import SEVERITIES, rules

    said = {
        "stops": "Stops the server", "wrong": "May give wrong answers", "slow": "Works, slower than it could",
        "notice": "Looks bad and is not", "info": "Worth knowing",
    }  # fmt: skip
    lines = ["# Messages that explain knows", "", MADE, ""]
    for severity in SEVERITIES:
        lines += [f"## {said[severity]}", ""]
        for rule in rules():
            if rule.severity == severity:
                lines += [f"### {rule.title}", "", "```text", rule.example, "```", "", rule.cause, "", rule.fix, ""]
                lines += [f"- `{command}`" for command in rule.commands] + ([""] if rule.commands else [])
                lines += [f"`{rule.id}`; {rule.source}", ""]
    return "\n".join(lines)


def plan_rules() -> str:
    """What a plan looks at."""
    from tilewright.plan.registry import rules

    lines = ["# What a plan looks at", "", MADE, "", "| rule | looks at | needs |", "|---|---|---|"]
    for rule in rules():
        needs = ", ".join(f"`--{need}`" for need in rule.needs)
        lines.append(f"| `{rule.id}` | {cell(rule.looks_at)} | {needs} |")
    return "\n".join(lines) + "\n"


def tools() -> str:
    """The tools of `mcp`."""
    from tilewright.mcp_.access import Access
    from tilewright.mcp_.tools import tools_document

    lines = ["# Tools of the MCP server", "", MADE, ""]
    for tool in tools_document(Access()).tools:
        lines += [f"## {tool.name}", "", tool.description, "", f"Answers with `{tool.document}`.", ""]
        required = set(tool.input_schema.get("required", ()))
        lines += ["| argument | |", "|---|---|"]
        for name, schema in tool.input_schema["properties"].items():
            need = " Required." if name in required else ""
            lines.append(f"| `{name}` | {cell(schema.get('description', ''))}{need} |")
        lines.append("")
    return "\n".join(lines)


def pages() -> dict[str, str]:
    """Every file of docs/reference, path -> content."""
    made = {
        **commands(), **documents(), "python.md": python_api(), "errors.md": errors(),
        "log-messages.md": log_messages(), "plan-rules.md": plan_rules(), "mcp-tools.md": tools(),
    }  # fmt: skip
    made["README.md"] = "\n".join(
        [
            "# Reference", "", MADE, "",
            "- [Commands](commands.md) and their options",
            "- [Documents](documents.md) that `--json` prints, [schemas](../schema)",
            "- [Python](python.md)",
            "- [Exit codes and errors](errors.md)",
            "- [Messages that explain knows](log-messages.md)",
            "- [What a plan looks at](plan-rules.md)",
            "- [Tools of the MCP server](mcp-tools.md)",
            "- [The kernel config](../kernel-config.md) and [the snapshot of observe](../observe-schema.md)",
        ]
    )  # fmt: skip
    return {path: re.sub(r"\n{3,}", "\n\n", text).rstrip("\n") + "\n" for path, text in made.items()}


def main(folder: Path) -> None:
    """Write every page into `folder`; what is no page any more goes."""
    made = pages()
    for path in folder.rglob("*.md"):
        if path.relative_to(folder).as_posix() not in made:
            path.unlink()
    for path, text in made.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "docs" / "reference")
