"""The CUDA sources compile for the GPUs that they are for, within shared memory and without spills; tables that the
decoder relies on are right. Nothing runs here: that takes a GPU."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

from tilewright.kernels.choose import H200, WGMMA, Gpu, choose, choose_decode, row_by_row
from tilewright.kernels.config import GroupedConfig
from tilewright.kernels.decode import SUMMED, DecodeConfig
from tilewright.kernels.launch import SILU, WEIGHTED
from tilewright.kernels.layout import BIT_SOURCE, CHUNK_BYTES, NAN_SCALE, scale_codes, source_rows
from tilewright.kernels.prefill import PrefillConfig

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
    for steps in (2, 48):
        config = choose(tokens * topk, experts, steps, Gpu(sms=188, wgmma=False, shared_bytes=SM120_LIMIT + 1024))
        assert isinstance(config, GroupedConfig)
        assert config.legal
        assert config.shared_bytes <= SM120_LIMIT
        assert choose(tokens * topk, experts, steps, H200).legal


@pytest.mark.parametrize("rows", [1, 2, 8, 16, 32, 51])
@pytest.mark.parametrize(("width", "steps"), [(512, 48), (6144, 2), (4096, 48), (6144, 16), (2880, 23), (16, 1)])
@pytest.mark.parametrize("sms", [48, 132, 188])
def test_what_is_chosen_for_single_rows_fits_the_smallest_gpu(rows: int, width: int, steps: int, sms: int) -> None:
    for build in (choose_decode(rows, width, steps, sms), choose_decode(rows, width, 8 * steps, sms, place="summed")):
        static = build.warps * (build.blocks * 16 + 1) * 4  # the warps' sums
        assert build.legal
        assert build.shared_bytes + static <= SM120_LIMIT


def test_a_tile_has_a_thread_for_each_of_its_rows() -> None:
    assert DecodeConfig(2, 1, 1).legal
    assert DecodeConfig(4, 2, 1).legal
    assert not DecodeConfig(4, 1, 1).legal


def test_single_rows_where_experts_hardly_repeat() -> None:
    """GLM-5 at TP8 (8 rows a token, 256 experts) and at EP8 (one row a token, 32 experts) up to 8 tokens."""
    assert [tokens for tokens in range(1, 20) if row_by_row(tokens * 8, 256)] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [tokens for tokens in range(1, 20) if row_by_row(tokens, 32)] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert row_by_row(1, 1)
    assert not row_by_row(2, 1)


def test_builds_that_were_fastest_on_an_h200() -> None:
    assert choose_decode(8, 512, 48) == choose_decode(1, 4096, 48) == DecodeConfig(2, 16, 1)
    assert (
        choose_decode(16, 512, 48) == choose_decode(16, 768, 32) == choose_decode(2, 6144, 16) == DecodeConfig(2, 8, 1)
    )
    assert (
        choose_decode(32, 512, 48) == choose_decode(4, 4096, 48) == choose_decode(8, 5760, 23) == DecodeConfig(4, 8, 1)
    )
    assert (
        choose_decode(64, 512, 48) == choose_decode(8, 4096, 48) == choose_decode(6, 6144, 16) == DecodeConfig(4, 4, 1)
    )
    assert choose_decode(8, 768, 32) == choose_decode(1, 6144, 16) == DecodeConfig(1, 8, 1)
    assert (
        choose_decode(8, 6144, 2) == choose_decode(16, 6144, 2) == choose_decode(16, 4096, 3) == DecodeConfig(2, 1, 1)
    )
    assert choose_decode(48, 6144, 2) == choose_decode(32, 7168, 2) == DecodeConfig(4, 2, 1)
    assert choose_decode(8, 4096, 3) == DecodeConfig(2, 3, 1)


def test_the_first_kernel_of_a_layer_leaves_room_for_the_second() -> None:
    """Qwen3-235B's w13 at TP4: alone as many warps as fit, in a layer one block an SM."""
    assert choose_decode(8, 768, 32) == DecodeConfig(1, 8, 1)
    assert choose_decode(8, 768, 32, place="first") == DecodeConfig(4, 16, 1)
    assert choose_decode(8, 512, 48, place="first") == choose_decode(8, 512, 48) == DecodeConfig(2, 16, 1)


def test_builds_that_were_fastest_where_experts_are_summed() -> None:
    def summed(tokens: int, width: int, steps: int) -> DecodeConfig:
        return choose_decode(tokens, width, steps, place="summed")

    assert summed(1, 4096, 24) == summed(1, 2880, 92) == DecodeConfig(2, 16, 1)
    assert summed(1, 6144, 16) == summed(1, 7168, 16) == DecodeConfig(4, 16, 1)
    assert summed(2, 6144, 16) == summed(2, 4096, 24) == summed(4, 2880, 92) == DecodeConfig(2, 8, 1)
    assert summed(4, 4096, 24) == DecodeConfig(4, 8, 1)
    assert summed(4, 6144, 16) == summed(6, 6144, 16) == summed(8, 2880, 92) == DecodeConfig(4, 4, 1)


def test_few_rows_are_sorted_with_one_column() -> None:
    few = GroupedConfig(1, 4, 4, 3, 4, 2)
    assert choose(16 * 8, 256, 2) == choose(64 * 8, 256, 48) == choose(128 * 8, 256, 48) == choose(160, 32, 16) == few
    assert choose(160 * 8, 256, 2) == few


def test_a_multiprocessor_holds_two_blocks_or_gets_a_smaller_build() -> None:
    """Of 100 KiB (SM120) one block of the build above would run alone."""
    small = Gpu(sms=188, wgmma=False, shared_bytes=SM120_LIMIT + 1024)
    for tokens in (16, 64, 128):
        build = choose(tokens * 8, 256, 2, small)
        assert build == GroupedConfig(1, 2, 4, 4, 4, 2)
        assert 2 * build.shared_bytes <= small.shared_bytes
        assert choose(tokens * 8, 256, 2, Gpu(sms=148, wgmma=False)) == GroupedConfig(1, 4, 4, 3, 4, 2)


def test_few_steps_of_k_are_sorted_for_more_rows() -> None:
    """GLM-5's second matrix at TP8 has two steps, at EP8 sixteen: wgmma starts longer than two steps take."""
    for tokens in (192, 256, 384):
        assert choose(tokens * 8, 256, 2) == GroupedConfig(2, 4, 4, 3, 4)
        assert isinstance(choose(tokens, 32, 16), PrefillConfig)
    assert isinstance(choose(512 * 8, 256, 2), PrefillConfig)


def test_rows_beyond_one_tile_are_dealt_out_evenly() -> None:
    """GLM-5 on Hopper: 5 rows an expert are still for mma.sync, 192 take two tiles of 96, 256 two of 128."""
    assert isinstance(choose(160 * 8, 256, 16), GroupedConfig)
    assert choose(192 * 8, 256, 16) == PrefillConfig(16, 8, 8, 7)
    assert choose(256 * 8, 256, 16) == choose(384 * 8, 256, 16) == choose(512 * 8, 256, 2) == PrefillConfig(24, 8, 8, 7)
    assert choose(6144 * 8, 256, 2) == choose(3072 * 8, 256, 16) == PrefillConfig(128, 96, 16, 3)
    for rows, experts in ((8192 * 8, 256), (4096 * 8, 256), (1 << 24, 2)):
        assert choose(rows, experts, 2) == PrefillConfig(160, 128, 16, 3)


@pytest.mark.parametrize("average", [6, 9, 10, 15, 16, 21, 29, 41, 57, 69, 89, 113, 144, 145, 200, 289, 1000])
def test_a_tile_holds_what_an_expert_gets_on_average(average: int) -> None:
    build = choose(average * 256, 256, 16)
    assert isinstance(build, PrefillConfig)
    tiles = -(-average // build.tokens)
    assert build.narrow / 2 <= average / tiles <= build.tokens


@pytest.mark.parametrize(
    "build",
    [
        PrefillConfig(168, 128, 8, 3), PrefillConfig(160, 124, 12, 3), PrefillConfig(160, 128, 24, 3),
        PrefillConfig(160, 96, 16, 3), PrefillConfig(64, 24, 8, 4), PrefillConfig(160, 128, 16, 4),
        PrefillConfig(64, 72, 8, 3), PrefillConfig(64, 48, 0, 3), PrefillConfig(64, 48, 8, 1),
    ],
    ids=str,
)  # fmt: skip
def test_builds_that_there_are_not(build: PrefillConfig) -> None:
    """Too wide, no multiple of 8, steps past the widest, too many widths, too much shared memory, too few stages."""
    assert not build.legal


def test_bytes_of_a_stage() -> None:
    assert CHUNK_BYTES == 64 * 128 * 9 // 16
    assert GroupedConfig(columns=1, blocks=2, warps=4, stages=4).shared_bytes == 4 * (2 * 4608 + 8 * 320)


DEFINES = {
    "nvfp4_grouped.cu": GroupedConfig().defines(1),
    "nvfp4_decode.cu": DecodeConfig(4, 16, 1).defines(SUMMED),
    "nvfp4_route.cu": (),
    "nvfp4_permute.cu": (),
}


def ptxas(tmp_path: Path, source: str, arch: str, defines: tuple[str, ...]) -> str:
    """What ptxas says of `source`."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc")
    path = files("tilewright.kernels").joinpath(source)
    command = [nvcc, f"-arch={arch}", "-cubin", "-Xptxas", "-v", "-std=c++17", *defines, "-o", "out.cubin"]
    done = subprocess.run([*command, str(path)], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.compiler
@pytest.mark.parametrize("arch", ["sm_90a", "sm_120a"])
@pytest.mark.parametrize("source", DEFINES)
def test_the_sources_compile_without_spills(tmp_path: Path, arch: str, source: str) -> None:
    spills = [
        int(number) for number in re.findall(r"(\d+) bytes spill", ptxas(tmp_path, source, arch, DEFINES[source]))
    ]
    assert spills
    assert not any(spills)


@pytest.mark.compiler
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a", "sm_120a"])
@pytest.mark.parametrize(
    "build",
    sorted(
        {
            choose(average * 256, 256, 2, Gpu(sms=148, wgmma=False, shared_bytes=shared))
            for average in (2, 8, 32)
            for shared in (H200.shared_bytes, SM120_LIMIT + 1024)
        },
        key=str,
    ),
    ids=str,
)
def test_no_sorted_build_that_is_chosen_spills(tmp_path: Path, build: GroupedConfig, arch: str) -> None:
    """ptxas is told that one thread block an SM is enough: else it spilled to make room for more."""
    told = ptxas(tmp_path, "nvfp4_grouped.cu", arch, build.defines(WEIGHTED))
    assert "0 bytes spill stores, 0 bytes spill loads" in told


SPILLED_BY_LOADERS = 64
"""Bytes that the loading warpgroup, 40 registers a thread, may keep outside of them from tile to tile."""


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("build", "mode"), [*((config, WEIGHTED) for _, config in WGMMA), (WGMMA[-1][1], SILU)], ids=str
)
def test_no_warpgroup_mma_waits_for_the_one_before(tmp_path: Path, build: PrefillConfig, mode: int) -> None:
    """ptxas serialises wgmma where registers run out, and only says so."""
    told = ptxas(tmp_path, "nvfp4_prefill.cu", "sm_90a", build.defines(mode))
    assert "serialized" not in told
    assert all(int(number) <= SPILLED_BY_LOADERS for number in re.findall(r"(\d+) bytes spill stores", told))
