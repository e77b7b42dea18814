"""Damaged and hostile binaries: a sentence or a listed reason, in bounded time and memory, no other exception."""

from __future__ import annotations

import contextlib
import struct
import time
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.binary.cubin import read_cubin
from tilewright.binary.decompress import lz4_block, zstd_frame, zstd_module
from tilewright.binary.fatbin import SIGNATURE
from tilewright.binary.images import Carrier, ReadBudget, open_carrier, read_image
from tilewright.binary.inspect import inspect
from tilewright.binary.source import BinaryError, BytesSource, InflateBudget, ZipSource
from tilewright.errors import InputError

DATA = Path(__file__).parent.parent / "data" / "binary"
NAMES = (
    *("toy.sm_90a.cubin", "tiny.sm_120f.cubin", "cuda12.8/tiny.sm_90a.cubin", "toy.speed.fatbin", "toy.size.fatbin"),
    *("host.o", "host_rdc.o", "lto.fatbin", "toy.compute_120a.ptx"),
)
FIXTURES = {name: (DATA / name).read_bytes() for name in NAMES}


def read(data: bytes) -> Carrier | None:
    """All of a file, kernels included; None where it is refused with a sentence."""
    source = BytesSource(data)
    try:
        carrier = open_carrier(source)
    except BinaryError as error:
        assert error.msg.endswith(".")
        return None
    budget = ReadBudget()
    for found in carrier.images if carrier else ():
        read_image(source, found, budget)
    return carrier


@given(name=st.sampled_from(NAMES), edits=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=12))
@settings(max_examples=300, deadline=None)
def test_changed_bytes_anywhere(name: str, edits: list[tuple[float, int]]) -> None:
    data = bytearray(FIXTURES[name])
    for where, value in edits:
        data[min(len(data) - 1, int(where * len(data)))] = value
    read(bytes(data))


@given(
    name=st.sampled_from(NAMES),
    edits=st.lists(
        st.tuples(st.integers(0, 60), st.sampled_from([0, 1, 0xFFFF, 1 << 31, (1 << 32) - 1, (1 << 63) - 1])),
        max_size=4,
    ),
    tail=st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_absurd_counts_and_offsets_in_headers(name: str, edits: list[tuple[int, int]], tail: bool) -> None:
    """Words of the first headers, or of an ELF's section headers at the end, replaced by extreme values."""
    data = bytearray(FIXTURES[name])
    for word, value in edits:
        at = len(data) - 4 * (word + 2) if tail else 4 * word
        struct.pack_into("<Q", data, at, value)
    read(bytes(data))


@given(name=st.sampled_from(NAMES), keep=st.floats(0, 1))
@settings(max_examples=150, deadline=None)
def test_truncated_anywhere(name: str, keep: float) -> None:
    read(FIXTURES[name][: int(keep * len(FIXTURES[name]))])


@given(data=st.binary(max_size=400))
@settings(deadline=None)
def test_garbage_after_each_magic(data: bytes) -> None:
    for magic in (b"", b"\x7fELF\x02\x01\x01", SIGNATURE, b"!<arch>\n", b".version 9.0\n.target sm_90\n"):
        read(magic + data)


@given(data=st.binary(max_size=300), size=st.integers(0, 2000))
@settings(deadline=None)
def test_lz4_gives_the_declared_size_or_an_error(data: bytes, size: int) -> None:
    with contextlib.suppress(BinaryError):
        assert len(lz4_block(data, size)) == size


def test_lz4_overlapping_matches() -> None:
    """`abcd`, then 12 bytes that repeat from 4 back, then two literals: the last sequence has literals only."""
    assert lz4_block(b"\x48abcd\x04\x00\x20xy", 18) == b"abcdabcdabcdabcdxy"


@given(data=st.binary(max_size=300))
@settings(deadline=None)
def test_damaged_zstd(data: bytes) -> None:
    if zstd_module() is None:
        pytest.skip("no zstd decoder here")
    with pytest.raises(BinaryError):
        zstd_frame(b"\x28\xb5\x2f\xfd" + data, 1000)


def elf(sections: list[tuple[int, int, int, int, int]], blob: bytes, machine: int = 190) -> bytes:
    """An ELF with the given sections (name offset, type, offset, size, link) before `blob`, which starts at byte 64."""
    table = 64 + len(blob)
    head = struct.pack(
        *("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01\x41\x08", 2, machine, 1, 0, 0, table, 0x6007802, 64, 0, 0, 64),
        *(len(sections), 0),
    )
    rows = b"".join(
        struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, at, size, link, 0, 1, 0) for name, kind, at, size, link in sections
    )
    return head + blob + rows


def test_millions_of_attributes() -> None:
    """Reading stops at the budget, also where many sections share the same bytes."""
    blob = b"\0.nv.info\0".ljust(64, b"\0")
    attributes = b"\x01\x00\x00\x00" * (1 << 20)
    names = (0, 3, 64, len(blob), 0)
    fits = elf([names, (1, 0x70000000, 128, len(attributes), 0)], blob + attributes)
    assert read_cubin(fits).kernels == ()
    started = time.monotonic()
    with pytest.raises(BinaryError, match="attributes"):
        read_cubin(elf([names, (1, 0x70000000, 128, 4 * len(attributes), 0)], blob + attributes * 4))
    assert time.monotonic() - started < 20


def test_names_that_all_point_at_one_long_string() -> None:
    """200,000 kernels share a name of 16 KiB: 3 GB, were it not bounded."""
    strings = b"\0.symtab\0.strtab\0" + b"k" * (16 << 10) + b"\0"
    symbol = struct.pack("<IBBHQQ", 17, 0x12, 0x10, 1, 0, 0)
    blob = strings + symbol * 200_000
    data = elf(
        [(0, 3, 64, len(strings), 0), (1, 2, 64 + len(strings), 24 * 200_000, 2), (9, 3, 64, len(strings), 0)], blob
    )
    with pytest.raises(BinaryError, match="names"):
        read_cubin(data)


def test_a_fatbinary_of_endless_tiny_images() -> None:
    entry = struct.pack("<HHIQIIHHIIIQQQ", 2, 0x101, 64, 0, 0, 0, 0, 0, 120, 0, 0, 0x11, 0, 0)
    body = entry * 50_000
    with pytest.raises(BinaryError, match="images"):
        open_carrier(BytesSource(SIGNATURE + struct.pack("<Q", len(body)) + body))


def test_an_image_that_declares_a_terabyte() -> None:
    entry = struct.pack("<HHIQIIHHIIIQQQ", 2, 0x101, 64, 8, 8, 0, 0, 0, 120, 0, 0, 0x2011, 0, 1 << 40)
    body = entry + bytes(8)
    source = BytesSource(SIGNATURE + struct.pack("<Q", len(body)) + body)
    carrier = open_carrier(source)
    assert carrier is not None
    image = read_image(source, carrier.images[0], ReadBudget())
    assert image.kernels is None
    assert "not listed" in (image.note or "")


def test_names_that_are_not_utf8_are_escaped(tmp_path: Path) -> None:
    data = (DATA / "tiny.sm_120.cubin").read_bytes().replace(b"\0one\0", b"\0\xff\xfe\xfd\0")
    (kernel,) = read_cubin(data).kernels
    assert kernel.name == "\\xff\\xfe\\xfd"


def test_a_damaged_archive(tmp_path: Path) -> None:
    path = tmp_path / "w-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.so", FIXTURES["host.o"])
        archive.writestr("b.so", FIXTURES["host.o"])
    data = bytearray(path.read_bytes())
    data[200:260] = bytes(60)
    path.write_bytes(data)
    report = inspect(path)
    assert [item.path for item in report.unreadable] == ["a.so"]
    assert [item.path for item in report.files] == ["b.so"]


@given(where=st.floats(0, 1), value=st.integers(0, 255), cut=st.floats(0.5, 1))
@settings(max_examples=60, deadline=None)
def test_changed_bytes_of_an_archive(
    tmp_path_factory: pytest.TempPathFactory, where: float, value: int, cut: float
) -> None:
    path = tmp_path_factory.mktemp("zip") / "w-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.so", FIXTURES["host.o"])
        archive.writestr("b.cubin", FIXTURES["tiny.sm_120f.cubin"])
    data = bytearray(path.read_bytes())
    data[min(len(data) - 1, int(where * len(data)))] = value
    path.write_bytes(data[: max(4, int(cut * len(data)))] if value % 3 == 0 else data)
    try:
        inspect(path)
    except InputError as error:
        assert error.msg


def test_a_wheel_of_many_modules_is_inflated_about_once(tmp_path: Path) -> None:
    """Each module's headers stand behind the last one's code: reading them never starts the member again."""
    fatbin = FIXTURES["lto.fatbin"]
    path = tmp_path / "w-1-py3-none-any.whl"
    library = b"MZ" + bytes(62) + (fatbin + bytes(8)) * 3000
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("a.dll", library)
    with zipfile.ZipFile(path) as archive:
        budget = InflateBudget()
        before = budget.left
        with ZipSource(archive, archive.getinfo("a.dll"), budget) as source:
            carrier = open_carrier(source)
        assert carrier is not None
        assert len(carrier.images) == 3000
        assert before - budget.left < 2 * len(library)
