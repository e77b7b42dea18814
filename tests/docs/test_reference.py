"""docs/reference is what the code says."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from conftest import REPO

REFERENCE = REPO / "docs" / "reference"


def made() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("build_docs", REPO / "tools" / "build_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    pages: dict[str, str] = module.pages()
    return pages


def test_the_reference_is_up_to_date() -> None:
    expected = made()
    found = {path.relative_to(REFERENCE).as_posix(): path.read_text("utf-8") for path in REFERENCE.rglob("*.md")}
    stale = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    assert not stale, f"docs/reference is out of date ({', '.join(stale)}); run: python tools/build_docs.py"


def test_the_reference_is_made_the_same_each_time() -> None:
    assert made() == made()


def test_links_between_the_pages_lead_somewhere() -> None:
    import re

    for page in sorted((REPO / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            if "://" not in target:
                assert (page.parent / Path(target)).exists(), f"{page.relative_to(REPO)}: {target}"
