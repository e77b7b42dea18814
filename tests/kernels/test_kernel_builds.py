"""The CUDA sources compile for the GPUs that they are for, within shared memory and without spills; tables that the
decoder relies on are right. Nothing runs here: that takes a GPU."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

from tilewright.kernels.choose import choose
from tilewright.kernels.config import GroupedConfig
from tilewright.kernels.layout import BIT_SOURCE, CHUNK_BYTES, NAN_SCALE, scale_codes, source_rows

SM120_LIMIT = 101376


def e4m3(byte: int) -> float:
    exponent, mantissa = byte >> 3, byte & 7
    return mantissa / 8 * 2**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)


def test_a_stored_scale_is_the_checkpoints_value() -> None:
    """Five exponent and three mantissa bits above 2^-22: exact for all 126 values, subnormals included."""
    codes = scale_codes()
    assert codes[0] == 0
    assert codes[0x7F] == NAN_SCALE
    for byte in range(1, 0x7F):
        stored = codes[byte]
        assert (1 + (stored & 7) / 8) * 2.0 ** ((stored >> 3) - 22) == e4m3(byte), byte


def test_every_bit_of_a_word_is_used_once() -> None:
    """Eight codes of four bits: two values a pair, two pairs a register pair, none twice."""
    places = {(source + 16 * value) % 32 for source in BIT_SOURCE.values() for value in range(2)}
    assert len(BIT_SOURCE) == 16
    assert len(places) == 32


@pytest.mark.parametrize(("rows", "gated"), [(512, True), (6144, False), (5760, True), (2880, False), (16, True)])
def test_every_row_is_stored_once(rows: int, gated: bool) -> None:
    order = source_rows(rows, gated)
    assert sorted(row for row in order if row >= 0) == list(range(rows))
    assert len(order) % 256 == 0


@pytest.mark.parametrize("tokens", [1, 4, 16, 64, 256, 1024, 4096])
@pytest.mark.parametrize(("experts", "topk"), [(256, 8), (32, 1), (128, 4)])
def test_what_is_chosen_is_legal_and_fits_the_smallest_gpu(tokens: int, experts: int, topk: int) -> None:
    config = choose(tokens * topk, experts)
    assert config.legal
    assert config.shared_bytes <= SM120_LIMIT


def test_bytes_of_a_stage() -> None:
    assert CHUNK_BYTES == 64 * 128 * 9 // 16
    assert GroupedConfig(columns=1, blocks=2, warps=4, stages=4).shared_bytes == 4 * (2 * 4608 + 8 * 320)


@pytest.mark.compiler
@pytest.mark.parametrize("arch", ["sm_90a", "sm_120a"])
@pytest.mark.parametrize("source", ["nvfp4_grouped.cu", "nvfp4_route.cu"])
def test_the_sources_compile_without_spills(tmp_path: Path, arch: str, source: str) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc")
    path = tmp_path / source
    path.write_bytes(files("tilewright.kernels").joinpath(source).read_bytes())
    defines = GroupedConfig().defines(1, pdl=True) if "grouped" in source else ()
    command = [nvcc, f"-arch={arch}", "-cubin", "-Xptxas", "-v", "-std=c++17", *defines, "-o", "out.cubin", source]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    spills = [int(number) for number in re.findall(r"(\d+) bytes spill", done.stderr)]
    assert spills
    assert max(spills) == 0, done.stderr
