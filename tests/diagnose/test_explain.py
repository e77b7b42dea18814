"""What logs say: known lines by their examples, the arithmetic behind them, unknown errors, files that are no log."""

from __future__ import annotations

import io
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.cli.main import invoke
from tilewright.diagnose import scan as scanning
from tilewright.diagnose.blocks import BLOCK_BYTES, Blocks
from tilewright.diagnose.explain import Explanation, explain
from tilewright.diagnose.rules import SEVERITIES, Rule, compiled, needs, rules
from tilewright.diagnose.scan import MAX_UNKNOWN, scan, template_of
from tilewright.diagnose.triton_need import explain_bytes
from tilewright.errors import InputError
from tilewright.report.schema import checker


def read(*lines: str | bytes) -> Explanation:
    return explain(io.BytesIO(b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines)))


def one(found: Explanation, rule_id: str) -> Any:
    return next(item for item in found.findings if item.id == rule_id)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.id)
def test_every_rule_finds_its_example_among_other_lines(rule: Rule) -> None:
    found = read("INFO Decode batch, #running-req: 8", rule.example, "INFO all is well")
    item = one(found, rule.id)
    assert (item.count, item.first_line, item.last_line) == (1, 2, 2)
    assert found.unknown == []
    # A skipped tactic and its cause, a failed capture and its out-of-memory, stand on one line.
    pairs = {"skipping_tactic", "tma_ws_internal", "graph_capture_failed", "cuda_oom", "no_native_fp4", "nccl_error"}
    assert {other.id for other in found.findings} - {rule.id} <= pairs


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.id)
def test_every_rule_is_whole(rule: Rule) -> None:
    assert rule.severity in SEVERITIES
    assert all(len(needle) >= 3 for needle in rule.needles)
    assert any(needle in rule.example for needle in rule.needles)
    for text in (rule.title, rule.cause, rule.fix, rule.source):
        assert text, rule.id
        assert not re.search(r"\bcase \w|\bC\d\d\b|DESIGN", text), "a reader has no list of ours to look that up in"
    assert rule.cause.endswith("."), rule.id
    assert len({other.id for other in rules()}) == len(rules())


@given(st.text(max_size=300))
def test_no_pattern_takes_long_on_anything(text: str) -> None:
    for rule in rules():
        compiled(rule.id).search(rule.needles[0] + text * 5)


# --- arithmetic


def test_the_bytes_of_a_tile_that_overflows_are_taken_apart() -> None:
    found = read("MoE grouped GEMM requires 102400 bytes shared memory but device supports 101376")
    lines = one(found, "smem_required").arithmetic
    assert lines[0] == "102,400 bytes asked for, 101,376 allowed: 1,024 too many."
    (tiles,) = lines[1:]
    assert "128x256x128 nvfp4 x nvfp4 grouped, finalize" in tiles
    assert "256x128x128 nvfp4 x nvfp4 grouped, finalize" in tiles
    assert "102,400 bytes. 3 stages take 82,944" in tiles
    assert "stages = 2 takes 74,752" in tiles


def test_a_generated_files_name_says_which_tile_it_was() -> None:
    line = next(rule.example for rule in rules() if rule.id == "tma_ws_internal")
    lines = one(read(line), "tma_ws_internal").arithmetic
    assert any(text.startswith("256x128x128 nvfp4 x nvfp4 grouped, finalize: 102,400 bytes") for text in lines)
    assert not any(text.startswith("128x256x128") for text in lines)


@pytest.mark.parametrize(
    ("need", "limit", "says"),
    [
        (147456, 101376, "(4 - 1) x (128 + 256) x 128 x 1 = 147,456. num_stages = 3 takes 98,304 and fits."),
        (102400, 101376, "with num_stages = 1 it takes 83,968"),
        (106496, 101376, "64x64 and smaller fit"),
        (263168, 232448, "30,720 too many"),
        (109568, 101376, "8,192 too many"),
        (110592, 101376, "98,304 fitted"),
    ],
)
def test_triton_reports_by_their_bytes(need: int, limit: int, says: str) -> None:
    found = read(f"OutOfResources: shared memory, Required: {need}, Hardware limit: {limit}")
    assert says in "\n".join(one(found, "triton_out_of_resources").arithmetic)


def test_a_request_below_the_limit_that_was_refused_points_at_static_memory() -> None:
    rule = next(rule for rule in rules() if rule.id == "dynamic_and_static_smem")
    (line,) = one(read(rule.example), rule.id).arithmetic
    assert line.startswith("101,120 bytes asked for, 101,376 allowed: 256 to spare")
    assert "static shared memory counts too" in line


def test_ptxas_writes_its_figures_in_hex() -> None:
    rule = next(rule for rule in rules() if rule.id == "uses_too_much_shared")
    (line,) = one(read(rule.example), rule.id).arithmetic
    assert line == "51,584 bytes asked for, 49,152 allowed: 2,432 too many."


def test_known_needs_have_a_source() -> None:
    sources = ("https://", "a public report of ")
    assert all(item.text and item.source.startswith(sources) for item in needs())


@pytest.mark.parametrize(
    ("limit", "says", "not_said"),
    [(101376, "num_stages = 1 it takes 83,968", "V100"), (98304, "BLOCK_N = 16", "83,968")],
)
def test_a_known_need_is_that_of_the_gpu_with_this_limit(limit: int, says: str, not_said: str) -> None:
    """Both GPUs' MLA decode asks for 102,400 bytes; what helps on one changes nothing on the other."""
    line = f"OutOfResources: out of resource: shared memory, Required: 102400, Hardware limit: {limit}."
    text = " ".join(one(read(line), "triton_out_of_resources").arithmetic)
    assert says in text
    assert not_said not in text


@pytest.mark.parametrize(
    "line",
    [
        "Got cutlass error: Error Internal at: 550",
        "terminate called: cutlass::Status::kErrorInternal in initialize()",
        "[FP4 gemm Runner] Failed to initialize cutlass FP4 gemm on sm120. Error: Error Internal",
        "RuntimeError: Error Internal",
    ],
)
def test_every_way_of_saying_error_internal_is_known(line: str) -> None:
    assert [item.id for item in read(line).findings] == ["cutlass_error_internal"]


# --- grouping, order, unknown


def test_repeats_are_grouped_and_the_worst_stands_first() -> None:
    skipped = next(rule.example for rule in rules() if rule.id == "skipping_tactic")
    found = read(*[skipped] * 40, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", skipped)
    assert [(item.id, item.count) for item in found.findings] == [("cuda_oom", 1), ("skipping_tactic", 41)]
    assert one(found, "skipping_tactic").last_line == 42
    assert one(found, "cuda_oom").figures == [{"size": "2.00", "unit": "GiB"}]


def test_unknown_errors_are_shown_as_unknown_by_their_shape() -> None:
    found = read(
        "[2026-12-02 13:00:01 TP0] ERROR frobnicator 17 broke at /opt/a/b.py:12",
        "[2026-12-02 13:00:02 TP3] ERROR frobnicator 18 broke at /srv/x/y.py:9",
        "ValueError: no such thing",
        "INFO error rate: 0.0, errors=0, ErrorHandler ready",
    )
    assert found.findings == []
    assert [(item.count, item.first_line) for item in found.unknown] == [(2, 1), (1, 3)]
    assert found.unknown[0].template == "ERROR frobnicator N broke at PATH:N"


def test_an_error_without_a_class_is_one() -> None:
    found = read("Error: thing 1 failed", "worker: Error: thing 2 failed", "Error handling is on")
    assert [(item.count, item.first_line) for item in found.unknown] == [(1, 1), (1, 2)]


def test_no_line_is_both_known_and_unknown() -> None:
    found = read("RuntimeError: CUDA error: an illegal instruction was encountered (ERROR)")
    assert [item.id for item in found.findings] == ["illegal_instruction"]
    assert found.unknown == []


def test_colours_and_control_characters_do_not_hide_a_line() -> None:
    found = read(b"\x1b[31mWARNING\x1b[0m P2P is disabled between connected GPUs 1 and 0\x07 \x1b[2J")
    assert one(found, "nccl_no_p2p").example == "WARNING P2P is disabled between connected GPUs 1 and 0"


def test_lines_count_across_blocks_of_any_length() -> None:
    """A line may be longer than a block, and a known one may lie across two."""
    filler = b"x" * 999 + b"\n"
    count = BLOCK_BYTES // len(filler)
    known = b"NCCL INFO P2P is disabled between connected GPUs 1 and 0."
    found = explain(io.BytesIO(filler * count + b"y" * 3000 + b"\n" + known + b"\n" + filler * count * 2 + known))
    item = one(found, "nccl_no_p2p")
    assert (item.count, item.first_line, item.last_line) == (2, count + 2, 3 * count + 3)
    assert found.lines == 3 * count + 3
    long = explain(io.BytesIO(b"z" * (3 * BLOCK_BYTES) + known))
    assert one(long, "nccl_no_p2p").count == 1


@pytest.mark.parametrize("filler", [b"z" * 100, b"an ERROR: "], ids=["plain", "full of errors"])
def test_a_line_longer_than_the_blocks_is_one_line(filler: bytes) -> None:
    known = b"NCCL INFO P2P is disabled between connected GPUs 1 and 0."
    long = filler * (3 * BLOCK_BYTES // len(filler))
    found = explain(io.BytesIO(long + b"\n" + known + b"\n" + long))
    assert found.lines == 3
    assert one(found, "nccl_no_p2p").first_line == 2


def test_one_of_a_kind_is_said_in_the_singular(cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("NCCL INFO P2P is disabled between connected GPUs 1 and 0.\n")
    assert cli("explain", str(path)).out.startswith("1 line: 1 known message, seen once.")


def test_a_hundred_megabytes_take_seconds_and_no_memory(tmp_path: Path) -> None:
    """The bar is 5 s for 100 MB; a tenth of it here, CPU time, on a machine that also does other things."""
    import tracemalloc

    line = b"[2026-12-02 13:00:11 TP0] Decode batch, #running-req: 8, #token: 4000, gen throughput (token/s): 431.12\n"
    bad = b"ValueError: thing %d failed\n"
    path = tmp_path / "big.log"
    with path.open("wb") as out:
        for index in range(100):
            out.write(line * 1000 + bad % index + rules()[0].example.encode() + b"\n")
    begun = time.process_time()
    with path.open("rb") as stream:
        found = explain(stream)
    assert time.process_time() - begun < 1.5
    assert found.findings[0].count == 100
    tracemalloc.start()
    with path.open("rb") as stream:
        scan(stream)
    assert tracemalloc.get_traced_memory()[1] < 12 * BLOCK_BYTES
    tracemalloc.stop()


def test_many_shapes_of_errors_do_not_grow_without_bound() -> None:
    found = read(*[f"ERROR {chr(97 + i % 26) * (i // 26 + 1)}" for i in range(MAX_UNKNOWN * 3)])
    assert sum(item.count for item in found.unknown) + found.unknown_more == MAX_UNKNOWN * 3
    assert len(found.unknown) == 20


@given(st.binary(max_size=400))
@settings(max_examples=200)
def test_whatever_is_in_it_a_log_is_read_or_refused(data: bytes) -> None:
    try:
        found = explain(io.BytesIO(data))
    except InputError:
        return
    assert found.bytes == len(data)
    assert found.lines == data.count(b"\n") + (bool(data) and not data.endswith(b"\n"))


def test_a_template_has_no_time_or_number_in_it() -> None:
    one_, two = "[2026-12-02 13:00:01] x 0x1f at 17", "[2026-11-01 09:10:59] x 0xabc at 3"
    assert template_of(one_) == template_of(two) == "x HEX at N"


# --- the command


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "server.log"
    path.write_text(next(rule.example for rule in rules() if rule.id == "triton_out_of_resources") + "\n")
    assert invoke(["explain", str(path)]) == 0
    text = capsys.readouterr().out
    assert "Stops the server" in text
    assert "98,304 and fits" in text
    assert invoke(["explain", str(path), "--check"]) == 1
    capsys.readouterr()
    assert invoke(["explain", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    checker("explain")(document)
    assert document["schema"] == "tilewright/explain/1"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x7fELF\x02\x01\x01" + b"\0" * 200, "NUL bytes"),
        (bytes(range(1, 256)) * 8, "binary data"),
        (b"\x1f\x8b\x08\x00abc", "gzip"),
        (b"\x28\xb5\x2f\xfdabc", "zstd"),
        ("\ufefflog".encode("utf-16-le"), "UTF-16"),
    ],
)
def test_what_is_no_log_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, said: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert invoke(["explain", str(path)]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert said in err


def test_a_log_that_was_cut_under_its_writer_begins_with_a_hole() -> None:
    found = read(b"\0" * 5000 + b"NCCL INFO P2P is disabled between connected GPUs 1 and 0.")
    assert one(found, "nccl_no_p2p").count == 1


NO_P2P = b"NCCL INFO P2P is disabled between connected GPUs 1 and 0.\n"


@pytest.mark.parametrize("buffering", [0, -1])
def test_a_huge_hole_in_a_file_is_not_read(tmp_path: Path, buffering: int) -> None:
    """40 GB at the start and 40 GB in the middle; what stands between and behind them is found all the same."""
    path = tmp_path / "log"
    with path.open("wb") as stream:
        stream.seek(40 << 30)
        stream.write(NO_P2P * 3)
        stream.seek(80 << 30)
        stream.write(b"INFO ready\n" + NO_P2P)
    started = time.monotonic()
    with path.open("rb", buffering=buffering) as stream:
        found = explain(stream)  # type: ignore[arg-type]
    assert time.monotonic() - started < 5
    assert one(found, "nccl_no_p2p").count == 4
    assert found.bytes == path.stat().st_size
    assert found.lines == 5


def test_nothing_but_a_hole_is_no_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log"
    for size in (1, BLOCK_BYTES, BLOCK_BYTES + 1, 5 << 30):
        with path.open("wb") as stream:
            stream.truncate(size)
        started = time.monotonic()
        assert invoke(["explain", str(path)]) == 2
        assert time.monotonic() - started < 5
        out, err = capsys.readouterr()
        assert (out, len(err.splitlines())) == ("", 1)
        assert "nothing but NUL bytes" in err


class Endless(io.RawIOBase):
    """A pipe out of which NUL bytes come for ever."""

    given = 0

    def read(self, size: int = -1, /) -> bytes:
        self.given += size
        return bytes(size)


def test_nul_bytes_out_of_a_pipe_end_somewhere() -> None:
    endless = Endless()
    with pytest.raises(InputError, match="NUL bytes follow each other"):
        list(Blocks(endless, "stdin", most=10 * BLOCK_BYTES))  # type: ignore[arg-type]
    assert endless.given <= 12 * BLOCK_BYTES


@given(st.lists(st.tuples(st.sampled_from(["hole", "text", "line"]), st.integers(1, 3 * BLOCK_BYTES)), max_size=5))
@settings(max_examples=25, deadline=None)
def test_blocks_are_the_input_without_its_holes(parts: list[tuple[str, int]]) -> None:
    pieces = {"hole": b"\0", "text": b"x", "line": b"ab\n"}
    data = b"".join((pieces[kind] * size)[:size] for kind, size in parts)
    try:
        blocks = list(Blocks(io.BytesIO(data), "log"))
    except InputError:
        assert not data.strip(b"\0") or data.lstrip(b"\0")[:BLOCK_BYTES].count(0)
        return
    assert b"".join(blocks).replace(b"\0", b"") == data.replace(b"\0", b"")
    assert all(block.endswith(b"\n") or len(block) >= BLOCK_BYTES for block in blocks[:-1])


def test_a_missing_file_and_an_empty_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["explain", str(tmp_path / "none")]) == 2
    assert "cannot be read" in capsys.readouterr().err
    (tmp_path / "empty").touch()
    assert invoke(["explain", str(tmp_path / "empty")]) == 0
    assert "0 lines" in capsys.readouterr().out


def test_a_log_of_another_encoding_or_with_colours_is_still_text() -> None:
    for text in ("Fehler: größe\n".encode("latin-1") * 50, b"\x1b[31mred\x1b[0m\t\r\n" * 50, "错误\n".encode() * 50):
        assert scan(io.BytesIO(text)).lines == 50


def test_a_file_that_cannot_be_read_is_not_asked_for_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["explain", "no-such.log"]) == 2
    assert capsys.readouterr().err == (
        "tilewright: FILE: 'no-such.log' cannot be read (No such file or directory); give a log, or -.\n"
    )


def test_an_equation_that_is_shown_holds() -> None:
    """Barriers and output buffers come on top of the operands' product in some tiles, so not every need is one."""
    for limit in (101376, 232448):
        for need in range(16384, 300000, 2048):
            for line in explain_bytes(need, limit):
                shown = re.search(r"\((\d) - 1\) x \((\d+) \+ (\d+)\) x (\d+) x (\d) = ([\d,]+)\.", line)
                if shown:
                    stages, m, n, k, size = (int(shown[i]) for i in range(1, 6))
                    assert (stages - 1) * (m + n) * k * size == int(shown[6].replace(",", "")) == need


PIECES = st.sampled_from(
    [
        b"[2026-11-03 12:00:01] ERROR worker 7: ",
        b"ValueError: no shape 0xdeadbeef12 ",
        b"RuntimeError: CUDA out of memory",
        b"all is well ",
        b"\x1b[31mFATAL\x1b[0m ",
        b"Error Internal",
        b"/usr/lib/python3/x.py ",
        b"feedfacecafe0 ",
        b"\n",
        b"\n",
        b"Failed to initialize cutlass TMA WS grouped gemm. Error: Error Internal",
        b"x" * 2100,
        b"\xff\xfe",
        b"12.5 ",
    ]
)


@given(st.lists(PIECES, max_size=60))
def test_a_block_full_of_errors_reads_as_any_other(pieces: list[bytes]) -> None:
    """Line by line or literal by literal: the same lines, hits and unknown errors."""
    data = b"all is well\n" + b"".join(pieces)
    found: list[scanning.Scan] = []
    for dense in (0, 1 << 40):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scanning, "DENSE_BYTES", dense)
            found.append(scanning.scan(io.BytesIO(data)))
    assert found[0] == found[1]


def test_errors_beyond_those_kept_are_counted_and_kept_ones_still_grow() -> None:
    names = [f"{a}{b}{c}" for a in "ghijklmnop" for b in "qrstuvwxyz" for c in "ghijkl"]
    lines = [f"ERROR {name}: step {i} failed\n" for i, name in enumerate(names)]
    lines += [f"ERROR {names[0]}: step {i} failed\n" for i in range(50)]
    result = scanning.scan(io.BytesIO("".join(lines).encode()))
    assert len(result.unknown) == scanning.MAX_UNKNOWN
    assert result.unknown_more == len(names) - scanning.MAX_UNKNOWN
    assert result.unknown[f"ERROR {names[0]}: step N failed"].count == 51


@pytest.mark.parametrize(
    ("line", "rule_id"),
    [
        ("ValueError: Free memory on device (85.1/94.97 GiB) on startup is less than desired GPU memory utilization "
         "(0.92, 87.4 GiB).", "memory_in_use"),
        ("ValueError: Weight input_size_per_partition = 576 is not divisible by weight quantization block_k = 128.",
         "block_n_divides"),
        ("CUDA Error: invalid argument (transformer_engine/common/x.cu:1200)", "invalid_argument"),
        ('error: static assertion failed with "Cta N should be one of 128/192/256"', "cutlass_refuses"),
        ("    Minimum and Maximum cuda capability supported by this version of PyTorch is", "torch_without_arch"),
    ],
)  # fmt: skip
def test_other_wordings_of_the_same_line_are_known(line: str, rule_id: str) -> None:
    found = read(line)
    assert [item.id for item in found.findings] == [rule_id]
    assert found.unknown == []


def test_only_decode_steps_outside_graphs_are_reported() -> None:
    prefill = "Prefill batch, #new-seq: 1, #running-req: 0, #queue-req: 0, cuda graph: False"
    graphed = "Decode batch, #running-req: 8, #token: 9, token usage: 0.10, cuda graph: True, gen throughput: 391.20"
    assert read(prefill, graphed).findings == []
    found = read(prefill, *[graphed.replace("True", "False").replace(" 8,", f" {n},") for n in (24, 32)])
    assert one(found, "decode_without_graph").count == 2
