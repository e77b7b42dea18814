"""Kernels of the committed toy binaries (tests/data/binary, made by its make.sh), against what ptxas 13.0 printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.binary.cubin import read_cubin
from tilewright.binary.decompress import zstd_module
from tilewright.binary.inspect import inspect
from tilewright.binary.model import FileReport, Kernel

DATA = Path(__file__).parent.parent / "data" / "binary"


def kernels(name: str) -> dict[str, Kernel]:
    return {kernel.name: kernel for kernel in read_cubin((DATA / name).read_bytes()).kernels}


def file(name: str) -> FileReport:
    (report,) = inspect(DATA / name).files
    return report


def test_figures_are_those_of_ptxas() -> None:
    """ptxas -v, sm_120a: 40 bytes stack frame, 36 bytes spill stores, 36 bytes spill loads, 24 registers."""
    spill = kernels("toy.sm_120a.cubin")["spill"]
    assert (spill.registers, spill.stack_bytes, spill.spill_store_bytes, spill.spill_load_bytes) == (24, 40, 36, 36)
    assert spill.constant_bytes == 912
    assert spill.parameter_bytes == 16


def test_a_local_array_is_no_spill() -> None:
    """A stack of 256 bytes, local memory instructions, and yet nothing spilled."""
    local = kernels("toy.sm_120a.cubin")["local"]
    assert (local.stack_bytes, local.spill_store_bytes, local.spill_load_bytes) == (256, 0, 0)
    assert (local.local_loads or 0) + (local.local_stores or 0) > 0


@pytest.mark.parametrize("name", ["toy.sm_120a.cubin", "toy.sm_90a.cubin"])
def test_static_shared_memory_is_without_what_the_system_reserves(name: str) -> None:
    tile = kernels(name)["tile"]
    assert tile.shared_bytes == 32 * 33 * 4
    assert tile.shared_reserved_bytes == 1024
    assert kernels(name)["copy"].shared_bytes == 0


def test_launch_bounds() -> None:
    assert kernels("toy.sm_90a.cubin")["tile"].max_threads == (128, 1, 1)
    assert kernels("toy.sm_90a.cubin")["copy"].max_threads is None


@pytest.mark.parametrize(
    ("name", "target", "toolkit"),
    [
        ("tiny.sm_90.cubin", "sm_90", "13.0"),
        ("toy.sm_90a.cubin", "sm_90a", "13.0"),
        ("tiny.sm_120.cubin", "sm_120", "13.0"),
        ("toy.sm_120a.cubin", "sm_120a", "13.0"),
        ("tiny.sm_120f.cubin", "sm_120f", "13.0"),
        ("tiny.sm_121.cubin", "sm_121", "13.0"),
        ("tiny.sm_121a.cubin", "sm_121a", "13.0"),
        # ABI 7: the SM is in the low byte of e_flags
        ("cuda12.8/tiny.sm_90.cubin", "sm_90", "12.8"),
        ("cuda12.8/tiny.sm_90a.cubin", "sm_90a", "12.8"),
        # ABI 8, but the `a` still in e_flags
        ("cuda12.8/tiny.sm_120a.cubin", "sm_120a", "12.8"),
    ],
)
def test_target_and_toolkit(name: str, target: str, toolkit: str) -> None:
    cubin = read_cubin((DATA / name).read_bytes())
    assert (cubin.target.name(), cubin.toolkit) == (target, toolkit)
    assert [kernel.name for kernel in cubin.kernels][:1] in (["one"], ["copy"])


def test_lz4_images_hold_the_same_kernels_as_the_plain_ones() -> None:
    images = file("toy.speed.fatbin").images or ()
    assert [(image.kind, image.target, image.compression) for image in images] == [
        ("sass", "sm_90", "lz4"),
        ("sass", "sm_120a", "lz4"),
        ("ptx", "compute_80", "lz4"),
    ]
    assert {kernel.name: kernel for kernel in images[1].kernels or ()} == kernels("toy.sm_120a.cubin")
    assert [kernel.name for kernel in images[2].kernels or ()] == ["copy", "tile", "spill", "local"]


def test_zstd_images_are_listed_and_read_where_a_decoder_is() -> None:
    images = file("toy.size.fatbin").images or ()
    assert [(image.target, image.compression) for image in images] == [
        ("sm_90", "zstd"),
        ("sm_120a", "zstd"),
        ("compute_80", "zstd"),
    ]
    assert images[1].uncompressed_bytes == (DATA / "toy.sm_120a.cubin").stat().st_size
    if zstd_module() is None:
        assert images[1].kernels is None
        assert "tilewright[binary]" in (images[1].note or "")
    else:
        assert {kernel.name: kernel for kernel in images[1].kernels or ()} == kernels("toy.sm_120a.cubin")


def test_ptx_text_has_its_target_version_and_bounds() -> None:
    (image,) = file("toy.compute_120a.ptx").images or ()
    assert (image.target, image.ptx_version) == ("compute_120a", "9.0")
    bounds = {kernel.name: kernel.max_threads for kernel in image.kernels or ()}
    assert bounds == {"copy": None, "tile": (128, 1, 1), "spill": None, "local": None}


def test_a_host_object_names_its_processor_and_the_family_target() -> None:
    report = file("host.o")
    assert report.cpu == "x86_64"
    assert [row.target for row in report.architectures] == ["sm_90", "sm_120f"]
    assert all(not row.relocatable for row in report.architectures)


def test_relocatable_code_and_lto_are_told_apart() -> None:
    (row,) = file("host_rdc.o").architectures
    assert (row.target, row.relocatable) == ("sm_121", True)
    (row,) = file("lto.fatbin").architectures
    assert (row.kind, row.target) == ("lto", "lto_90")
