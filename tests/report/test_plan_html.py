"""`plan --html`: one offline page, well formed, everything from outside escaped, written whole or not at all."""

from __future__ import annotations

import copy
import json
import re
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from plans import as_plan, document, kept

from tilewright.plan.make import plan
from tilewright.report.plan_html import html, prose, shell, source

BASE = ("plan", "--model", "GLM-5-NVFP4", "--gpu", "rtx-pro-6000-server", "--gpus", "8", "--engine", "sglang")
VOID = {"meta", "link", "br", "hr", "img", "input", "wbr"}
EVIL = (
    "\"'><script>alert(1)</script><img src=x onerror=alert(1)>\x00\x1b[31m\u202e`a` "
    'https://e.example/"onclick=b {{7*7}}'
)


class Page(HTMLParser):
    """The elements of a page; raises where they do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), (tag, names)
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def check_safe(page: Page) -> None:
    """No script, no handler, nothing fetched, no address but https and the page's own."""
    for tag, attributes in page.elements:
        assert tag not in (
            "script",
            "iframe",
            "object",
            "embed",
            "base",
            "form",
            "img",
            "use",
            "image",
            "foreignobject",
        )
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            assert name not in ("src", "srcset", "action", "formaction", "style"), (tag, name)
            if name in ("href", "xlink:href"):
                assert value is not None
                assert value.startswith("#") or value == "data:," or (tag == "a" and value.startswith("https://")), (
                    value
                )
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [
        str(attributes["href"])[1:] for tag, attributes in page.elements if str(attributes.get("href")).startswith("#")
    ]
    assert set(links) <= set(ids)


def test_the_page_is_well_formed_self_contained_and_small() -> None:
    text = html(as_plan(document()))
    page = Page(text)
    check_safe(page)
    assert len(text.encode()) < 1_000_000
    assert text.count("<html") == text.count("<body") == 1
    policy = next(a["content"] for t, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert not re.search(r"url\((?!#)|@import|@font-face", text)
    assert {"budget-0", "roofline", "expert-rows", "decode-step", "throughput", "memory-of-a-gpu", "tried"} == {
        str(a["id"]).removeprefix("figure-") for t, a in page.elements if t == "figure"
    }


def _said(text: str) -> str:
    return " ".join(re.sub(r"[`*]", "", text).split())


def test_everything_that_the_plan_says_is_on_the_page() -> None:
    made = as_plan(document())
    words = _said(Page(html(made)).words).replace(" ", "")
    assert made.findings
    assert made.rejected
    for item in made.findings:
        for text in (item.title, item.cause, item.fix.text, item.confirm, item.undo, item.risk, item.numerics):
            assert _said(text).replace(" ", "") in words
        for one in item.evidence:
            assert _said(one.text).replace(" ", "") in words
            assert _said(one.source).replace(" ", "") in words
        for line in item.fix.commands:
            assert _said(line).replace(" ", "") in words
    for item in made.rejected:
        assert _said(item.idea).replace(" ", "") in words
        assert _said(item.why).replace(" ", "") in words
    for claim in made.baseline["claims"]:
        assert _said(claim["claim"]).replace(" ", "") in words


def _poisoned(value: Any, key: str = "") -> Any:
    """Every text of a plan with what would act as HTML, XML or a template."""
    if isinstance(value, dict):
        return {name: _poisoned(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_poisoned(item, key) for item in value]
    enums = ("schema", "kind", "layer", "basis", "status", "id", "field", "component", "key")
    return value + EVIL if isinstance(value, str) and key not in enums else value


def test_hostile_text_anywhere_in_a_plan_does_nothing() -> None:
    made = document()
    made["baseline"]["log"] = [{"count": 1, "says": EVIL, "first_line": 1, "text": EVIL, "id": "x"}]
    text = html(as_plan(_poisoned(made)))
    page = Page(text)
    check_safe(page)
    assert "<script" not in text
    assert "49" not in re.findall(r"onclick=b (\S+)", text)
    assert "\x00" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ("plain & <b>", "plain &amp; &lt;b&gt;"),
        ("`a<b` and ``c`d``", "<code>a&lt;b</code> and <code>c`d</code>"),
        ("**all** of it", "<strong>all</strong> of it"),
    ],
)
def test_prose(given: str, want: str) -> None:
    assert str(prose(given)) == want


def test_sources_link_to_the_web_and_nowhere_else() -> None:
    assert str(source("https://a.example/b?c=1&d (comment), x.py:3")) == (
        '<a href="https://a.example/b?c=1&amp;d" rel="noreferrer">https://a.example/b?c=1&amp;d</a> (comment), x.py:3'
    )
    assert "<a" not in str(source("javascript:alert(1) http://a.example data:text/html,x"))


def test_a_command_is_copied_as_it_is() -> None:
    page = Page("<pre>" + str(shell("a --b 'c  d' <e>")) + "</pre>")
    assert "".join(page.text) == "a --b 'c  d' <e>"


@pytest.mark.parametrize(
    "inputs",
    [
        {"model": "Mixtral-8x7B", "gpu": "h200", "gpus": 4, "engine": "vllm"},
        {"model": "gpt-oss-120b", "gpu": "5090", "gpus": 1, "engine": "vllm"},
        {"model": "GLM-5-NVFP4", "gpu": "5090", "gpus": 3, "engine": "trtllm"},
        {"model": "DeepSeek-R1", "gpu": "b200", "gpus": 8, "engine": "trtllm"},
    ],
)
def test_plans_of_other_models_and_gpus(inputs: dict[str, Any]) -> None:
    page = Page(html(plan(**inputs)))
    check_safe(page)
    assert "Do this first" in page.words


def test_a_plan_without_series_or_facts_has_no_charts_and_still_reads() -> None:
    made = document()
    made["baseline"] = {key: made["baseline"][key] for key in ("summary", "remarks", "claims", "not_given", "notes")}
    made["findings"] = []
    page = Page(html(as_plan(made)))
    check_safe(page)
    assert not [tag for tag, _ in page.elements if tag == "figure"]
    assert "Nothing found to change with what was given." in page.words


PATHS = st.lists(st.integers(0, 10_000), min_size=1, max_size=6)
JUNK = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=9)


def _spoilt(made: Any, path: list[int], junk: Any) -> None:
    """`junk` in place of something somewhere in the plan's baseline."""
    place = made["baseline"]
    for step in path:
        names = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not names:
            return
        name = names[step % len(names)]
        if not isinstance(place[name], dict | list) or step == path[-1]:
            place[name] = junk
            return
        place = place[name]


@settings(max_examples=60, deadline=None, phases=[Phase.explicit, Phase.generate], derandomize=True)
@given(st.lists(st.tuples(PATHS, JUNK | st.just({}) | st.just([])), min_size=1, max_size=3))
def test_a_kept_plan_that_was_changed_gives_a_page_or_one_sentence(changes: list[tuple[list[int], Any]]) -> None:
    from tilewright.errors import InputError
    from tilewright.report.plan_forms import forms

    made = document()
    for path, junk in changes:
        _spoilt(made, path, junk)
    try:
        done = forms(as_plan(made), html=True, kept="kept.json")
    except InputError as error:
        assert "kept.json" in str(error)
        return
    assert done.html is not None
    check_safe(Page(done.html))


# --- the command ---


def test_html_stands_beside_the_other_two_and_may_be_written_again(cli: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for _ in range(2):
        result = cli(*BASE, "--html", "--out", str(out))
        assert result.code == 0
        assert f"Written: {out}/plan.md, {out}/plan.json, {out}/plan.html" in result.out
    assert sorted(path.name for path in out.iterdir()) == ["plan.html", "plan.json", "plan.md"]
    text = (out / "plan.html").read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert text.rstrip().endswith("-->")
    assert oct((out / "plan.html").stat().st_mode & 0o777) == oct((out / "plan.md").stat().st_mode & 0o777)


def test_an_edited_page_is_kept(cli: Any, tmp_path: Path) -> None:
    assert cli(*BASE, "--html", "--out", str(tmp_path)).code == 0
    page = tmp_path / "plan.html"
    page.write_text(page.read_text(encoding="utf-8").replace("Do this first", "Mine"), encoding="utf-8")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    result = cli(*BASE, "--html", "--out", str(tmp_path))
    assert result.code == 2
    assert "plan.html' was edited after tilewright wrote it; it is kept" in result.err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert cli(*BASE, "--html", "--out", str(tmp_path), "--force").code == 0
    assert "Mine" not in page.read_text(encoding="utf-8")


def test_an_older_page_is_named(cli: Any, tmp_path: Path) -> None:
    cli(*BASE, "--html", "--out", str(tmp_path))
    result = cli(*BASE, "--out", str(tmp_path))
    assert result.code == 0
    assert "plan.html is of an earlier plan" in result.err


def test_without_a_folder_the_page_is_on_stdout(cli: Any) -> None:
    result = cli(*BASE, "--html")
    assert result.code == 0
    check_safe(Page(result.out))
    assert cli(*BASE, "--html", "--json").code == 2


def test_a_series_has_pages_too(cli: Any, tmp_path: Path) -> None:
    for _ in range(2):
        assert cli(*BASE, "--html", "--series", str(tmp_path)).code == 0
    assert sorted(path.name for path in tmp_path.glob("*.html")) == ["plan-01.html", "plan-02.html"]


def test_a_kept_plan_becomes_the_same_page(cli: Any, tmp_path: Path) -> None:
    assert cli(*BASE, "--html", "--out", str(tmp_path)).code == 0
    again = cli("plan", "--from", str(tmp_path / "plan.json"), "--html")
    assert again.code == 0
    assert (tmp_path / "plan.html").read_text(encoding="utf-8").startswith(again.out.rstrip("\n"))
    markdown = cli("plan", "--from", str(tmp_path / "plan.json"))
    assert (tmp_path / "plan.md").read_text(encoding="utf-8").startswith(markdown.out.rstrip("\n"))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is no plan.json of this version"),
        (b"[" * 100_000, "is no plan.json of this version"),
        (b'{"schema":"tilewright/plan/2"}', "is no plan.json of this version"),
        (b'{"schema":"tilewright/plan/1","target":{},"baseline":{},"findings":[],"rejected":[]}', "lacks something"),
        (b"\x00\xff\xfe" * 50, "is no plan.json of this version"),
    ],
)
def test_a_file_that_is_no_plan(cli: Any, tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "kept.json"
    path.write_bytes(content)
    result = cli("plan", "--from", str(path), "--html")
    assert result.code == 2
    assert says in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_from_takes_no_inputs_and_without_it_a_model_is_needed(cli: Any, tmp_path: Path) -> None:
    path = kept(tmp_path, document())
    assert "drop --gpus" in cli("plan", "--from", str(path), "--gpus", "4").err
    assert "Missing option '--model'" in cli("plan", "--gpu", "h200").err
    assert cli("plan", "--from", str(tmp_path)).code == 2


def test_what_fills_the_disk_leaves_what_was_there(tmp_path: Path) -> None:
    import subprocess
    import sys

    out = tmp_path / "out"
    code = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from tilewright.cli.main import invoke\n"
        "if sys.argv[1] == 'small': resource.setrlimit(resource.RLIMIT_FSIZE, (90_000, 90_000))\n"
        "sys.exit(invoke(sys.argv[2:]))\n"
    )
    run = [sys.executable, "-c", code]
    args = [*BASE, "--html", "--out", str(out)]
    assert subprocess.run([*run, "large", *args], capture_output=True, check=False).returncode == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    done = subprocess.run([*run, "small", *args], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "cannot be written to: File too large" in done.stderr
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_a_log_whose_name_is_no_text(cli: Any, tmp_path: Path) -> None:
    log = str(tmp_path / "x\udcff.log")
    Path(log).write_text("Failed to initialize cutlass TMA WS grouped gemm. Error: Error Internal\n", encoding="utf-8")
    out = tmp_path / "out"
    assert cli(*BASE, "--log", log, "--html", "--out", str(out)).code == 0
    check_safe(Page((out / "plan.html").read_text(encoding="utf-8")))


# --- the style ---


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """WCAG 2 contrast ratio of two colours `#rrggbb`."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [0, 1])
def test_text_can_be_read_in_light_and_dark(scheme: int) -> None:
    css = resources.files("tilewright.report").joinpath("plan.css").read_text(encoding="utf-8")
    block = re.findall(r":root \{(.*?)\}", css, re.S)[scheme]
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", block))
    for name in ("ink", "soft", "link", "bad", *(f"l{i}" for i in range(10))):
        assert contrast(colours[name], colours["bg"]) >= 4.5, name
    for ground in ("panel", "band", "free", *(f"c{i}" for i in range(10))):
        assert contrast(colours["ink"], colours[ground]) >= 4.5, ground
    for ground in ("panel", "band"):
        assert contrast(colours["soft"], colours[ground]) >= 4.5, ground


def test_the_document_is_not_changed_by_drawing_it() -> None:
    made = document()
    before = copy.deepcopy(made)
    html(as_plan(made))
    assert made == before
    assert json.loads(msgspec.json.encode(made)) == json.loads(msgspec.json.encode(before))
