"""The page of a plan in a real headless Chromium: nothing fetched, no error, nothing past an edge, in every setting."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import browser
import pytest
from plans import as_plan, document

from tilewright.report.plan_html import html

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(browser.find() is None, reason="no Chromium here (set TILEWRIGHT_CHROMIUM, or install one)"),
]

# What is drawn wider than the part of the page that holds it, and may not be scrolled to.
_CUT = """[...document.querySelectorAll('body *')].filter(one => {
  if (one.closest('svg') || one.closest('.scroll') || !one.getClientRects().length) return false;
  const box = one.getBoundingClientRect();
  return box.right > document.documentElement.clientWidth + 0.5 || box.left < -0.5;
}).map(one => one.tagName + ' ' + one.className + ' ' + one.textContent.slice(0, 40))"""
# Text of a drawing that leaves the drawing.
_OUTSIDE = """[...document.querySelectorAll('figure svg')].flatMap(svg => {
  const edge = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter(text => {
    const box = text.getBoundingClientRect();
    return box.left < edge.left - 1 || box.right > edge.right + 1 || box.top < edge.top - 1
      || box.bottom > edge.bottom + 1;
  }).map(text => svg.parentElement.parentElement.id + ': ' + text.textContent);
})"""
# Texts of a drawing that lie over each other.
_OVERLAP = """[...document.querySelectorAll('figure svg')].flatMap(svg => {
  const all = [...svg.querySelectorAll('text')].map(text => [text.textContent, text.getBoundingClientRect()]);
  return all.flatMap(([name, a], i) => all.slice(i + 1).filter(([other, b]) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4
  ).map(([other]) => svg.parentElement.parentElement.id + ': ' + name + ' / ' + other));
})"""
_COLOURS = """[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"""


@pytest.fixture(scope="module")
def page() -> Iterator[browser.Page]:
    with browser.page() as opened:
        yield opened


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "plan.html"
    path.write_text(html(as_plan(document())), encoding="utf-8")
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 760, 390])
def test_nothing_is_fetched_nothing_fails_nothing_is_cut(
    page: browser.Page, file: Path, width: int, scheme: str, tmp_path: Path
) -> None:
    page.requests.clear()
    page.problems.clear()
    page.open(file, width, scheme)
    assert page.requests == [file.as_uri()]
    assert page.problems == []
    assert page.value("document.documentElement.scrollWidth") == width
    assert page.value(_CUT) == []
    assert page.value(_OUTSIDE) == []
    assert page.value(_OVERLAP) == []
    assert page.value(_COLOURS) == (
        ["rgb(255, 255, 255)", "rgb(26, 29, 33)"] if scheme == "light" else ["rgb(20, 23, 26)", "rgb(232, 234, 237)"]
    )
    page.screenshot(tmp_path / "page.png", {"x": 0, "y": 0, "width": width, "height": 1200})
    picture = (tmp_path / "page.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 20_000  # an empty page packs to a few hundred bytes


def test_print_is_light_and_fits_the_paper(page: browser.Page, file: Path) -> None:
    page.open(file, 760, "dark", media="print")
    assert page.value(_COLOURS) == ["rgb(255, 255, 255)", "rgb(26, 29, 33)"]
    assert page.value("[...document.querySelectorAll('figure svg')].every(one => one.clientWidth <= 760)") is True
    page.call("Emulation.setEmulatedMedia", media="screen")


def test_a_bar_is_as_long_on_the_screen_as_it_is_large(page: browser.Page, file: Path) -> None:
    page.open(file, 1280, "light")
    widths = page.value(
        "[...document.querySelectorAll('#figure-budget-0 svg rect.part')]"
        ".map(one => [one.previousElementSibling.textContent, one.getBoundingClientRect().width])"
    )
    row = [(text, width) for text, width in widths if "smem_A: 24,576" in text or "smem_B: 49,152" in text]
    (_, a), (_, b) = row[:2]
    assert b / a == pytest.approx(2.0, rel=1e-3)


def test_hostile_names_do_nothing_in_a_browser(page: browser.Page, tmp_path: Path) -> None:
    made = document()
    evil = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    made["target"]["checkpoint"] = evil
    made["findings"][0]["title"] = evil
    made["baseline"]["log"] = [{"count": 1, "says": evil, "first_line": 1, "text": evil, "id": "x"}]
    made["baseline"]["series"]["throughput"][0]["layout"] = evil
    path = tmp_path / "evil.html"
    path.write_text(html(as_plan(made)), encoding="utf-8")
    page.requests.clear()
    page.problems.clear()
    page.open(path, 1280, "light")
    assert "owned" not in page.value("document.title").replace(evil, "")
    assert page.value("document.scripts.length + document.images.length") == 0
    assert page.requests == [path.as_uri()]
    assert page.problems == []
