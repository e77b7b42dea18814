"""A plan in the forms in which it is kept: Markdown, JSON, and HTML where it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.errors import InputError, shown
from tilewright.plan.finding import Plan
from tilewright.report.output import json_bytes


@dataclass(frozen=True)
class Forms:
    """The same plan three times; `html` is None where it was not asked for."""

    markdown: str
    json: bytes
    html: str | None


def _rendered(render: Callable[[Plan], str], plan: Plan, kept: str | None) -> str:
    from jinja2 import TemplateError

    if kept is None:
        return render(plan)
    try:
        return render(plan)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, TemplateError) as error:
        reason = f"{type(error).__name__}: {error}"[:200]
        msg = (
            f"--from {shown(kept)} lacks something that this version's plans have ({reason}); make the plan again from "
            "its inputs."
        )
        raise InputError("from", msg) from None


def forms(plan: Plan, *, html: bool, kept: str | None = None) -> Forms:
    """`plan` in its forms. `kept` names the plan.json that it was read from, if it was.

    Raises:
        InputError: a kept plan has not what a plan of this version has.
    """
    from tilewright.report.plan_text import markdown

    page: str | None = None
    if html:
        from tilewright.report.plan_html import html as as_html

        page = _rendered(as_html, plan, kept)
    return Forms(_rendered(markdown, plan, kept), json_bytes(plan), page)
