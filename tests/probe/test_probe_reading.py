"""What the compiler writes, read back: PTX, diagnostics, ptxas's figures, a cubin's sections."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import ToolError
from tilewright.probe.diagnostics import parse_diagnostics
from tilewright.probe.ptxas import parse_ptxas, section_bytes
from tilewright.probe.unit import ABSENT, FIELD_PATHS, SCALARS, read_ptx

COUNT = 1 + len(SCALARS) + 3 * len(FIELD_PATHS)
NAMES = ".visible .global .align 8 .u64 tw_names_4[3] = {generic(_Z1a), generic(_Z1b), _Z1c};\n"


def array(values: list[int], declared: int = COUNT) -> str:
    data = ", ".join(str(byte) for value in values for byte in (value & 0xFFFFFFFF).to_bytes(4, "little"))
    return f".visible .global .align 4 .b8 tw_values_4[{4 * declared}] = {{{data}}};\n" + NAMES


def values(**given: int) -> list[int]:
    return [ABSENT, *(given.get(key, ABSENT) for key, _ in SCALARS), *([ABSENT] * (3 * len(FIELD_PATHS)))]


def test_values_are_read_with_their_signs_and_absent_members_left_out() -> None:
    numbers = values(smem_bytes=102400, stages=-1)
    numbers[1 + len(SCALARS) : 4 + len(SCALARS)] = [1024, 87040, 128]
    reading = read_ptx(array(numbers))[4]
    assert reading.scalars == {"smem_bytes": 102400, "stages": -1}
    assert reading.fields == {"kernel.tensors": (1024, 87040, 128)}
    assert reading.names == ("_Z1a", "_Z1b", "_Z1c")


def test_trailing_zeros_that_ptx_leaves_out_are_zeros() -> None:
    numbers = values(smem_bytes=1)
    numbers[-3:] = [0, 0, 0]
    assert read_ptx(array(numbers[:-3]))[4].fields["epilogue.tensors.collective.smem_D"] == (0, 0, 0)


def test_words_are_read_as_well_as_bytes() -> None:
    numbers = ", ".join(str(value & 0xFFFFFFFF) for value in values(threads=384, stages_c=-2))
    ptx = f".global .align 4 .u32 tw_values_4[{COUNT}] = {{{numbers}}};\n{NAMES}"
    assert read_ptx(ptx)[4].scalars == {"threads": 384, "stages_c": -2}


def test_an_array_of_another_length_is_an_error_not_a_result() -> None:
    with pytest.raises(ToolError, match="form that this version does not read"):
        read_ptx(array(values()[:-1], COUNT - 1))


@given(st.text(max_size=200))
def test_garbage_is_no_reading(text: str) -> None:
    assert read_ptx(text) == {}
    assert parse_diagnostics(text, []) == []
    assert parse_ptxas(text) == {}


MAINLOOP = "/t/include/cutlass/gemm/collective/sm120_blockscaled_mma_array_tma.hpp"
KERNEL = "/t/include/cutlass/gemm/kernel/sm100_gemm_tma_warpspecialized.hpp"
# What nvcc 13.0.88 printed for two configs on FlashInfer 0.6.2's headers, template arguments shortened.
DIAGNOSTICS = f"""\
{MAINLOOP}(214): error: static assertion failed with "Specialization requires Stages set to value 2 or more."
    static_assert(DispatchPolicy::Stages >= 2, "...");
    ^
          detected during instantiation of class "cutlass::gemm::collective::CollectiveMma<A, B>" at line 2 of twcfg3

/t/include/cute/int_tuple.hpp(408): error: static assertion failed with "Divisibility Condition"
        static_assert(((IntTupleA::value % IntTupleB::value) == 0));
        ^
          detected during:
            instantiation of "auto cute::shape_div(const A &, const B &) [with A=cute::C<24>]" at line 391
            instantiation of function "lambda" at line 109 of /t/include/cute/algorithm/tuple_algorithms.hpp
            instantiation of class "cutlass::epilogue::collective::CollectiveBuilder<A>" at line 1 of twcfg11

twcfg11(2): error: name followed by "::" must be a class or namespace name
  using M = typename X
                     ^

{KERNEL}(213): error: static assertion failed with "SMEM usage exceeded capacity."
    static_assert(SharedStorageSize <= cutlass::arch::sm100_smem_capacity_bytes, "...");
    ^
          detected during instantiation of class "cutlass::gemm::kernel::GemmUniversal<A>" at line 3 of twcfg5

cuda/std/x.h(1): warning: something
4 errors detected in the compilation of "unit.cu".
"""


def test_each_error_goes_to_the_config_in_whose_chain_it_is() -> None:
    found = parse_diagnostics(DIAGNOSTICS, ["/t/include"])
    assert [(item.config, item.statement, item.at, item.follow_up, item.capacity) for item in found] == [
        (3, 2, "cutlass/gemm/collective/sm120_blockscaled_mma_array_tma.hpp:214", False, False),
        (11, 1, "cute/int_tuple.hpp:408", False, False),
        (11, 2, "twcfg11:2", True, False),
        (5, 3, "cutlass/gemm/kernel/sm100_gemm_tma_warpspecialized.hpp:213", False, True),
    ]
    assert found[1].message == 'static assertion failed with "Divisibility Condition"'


def test_an_error_outside_every_config_belongs_to_none() -> None:
    (found,) = parse_diagnostics("/t/include/cute/a.hpp(1): error: boom\n", ["/t/include"])
    assert (found.config, found.statement, found.at) == (None, 0, "cute/a.hpp:1")


# Of nvcc 13.0.88 on the kernel of DESIGN section 2, tile 128x128x128, 4 stages.
PTXAS = """\
ptxas info    : 17 bytes gmem
ptxas info    : Compiling entry function '_ZN7cutlass13device_kernelIN4cute5tupleEEEvNT_6ParamsE' for 'sm_120a'
ptxas info    : Function properties for _ZN7cutlass13device_kernelIN4cute5tupleEEEvNT_6ParamsE
    24 bytes stack frame, 60 bytes spill stores, 84 bytes spill loads
ptxas info    : Used 168 registers, used 8 barriers, 24 bytes cumulative stack size
ptxas info    : Compile time = 9000.0 ms
"""


def test_registers_spills_and_stack_of_the_kernel() -> None:
    assert parse_ptxas(PTXAS) == {
        "stack_bytes": 24,
        "spill_store_bytes": 60,
        "spill_load_bytes": 84,
        "registers": 168,
        "barriers": 8,
    }


def elf(sections: list[tuple[str, int]]) -> bytes:
    """A 64-bit ELF that has nothing but section headers."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name, _ in sections) + b".shstrtab\0"
    table = 64 + len(names)
    header = b"\x7fELF\x02\x01" + bytes(34) + struct.pack("<Q", table) + bytes(10)
    header += struct.pack("<HHH", 64, len(sections) + 2, len(sections) + 1)
    rows = [struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)]
    at = 1
    for name, size in [*sections, (".shstrtab", len(names))]:
        rows.append(struct.pack("<IIQQQQIIQQ", at, 1, 0, 0, 64, size, 0, 0, 0, 0))
        at += len(name) + 1
    return header + names + b"".join(rows)


def test_sections_of_a_cubin_are_added_up_by_prefix() -> None:
    data = elf([(".text.kernel", 512), (".nv.local.kernel", 48), (".nv.local.other", 16), (".nv.info", 7)])
    assert section_bytes(data, ".nv.local.") == 64
    assert section_bytes(data, ".text.") == 512
    assert section_bytes(data, ".nope") == 0


@given(st.binary(max_size=200), st.integers(0, 200))
def test_a_damaged_cubin_has_no_sections(tail: bytes, cut: int) -> None:
    assert section_bytes(tail, ".text.") == 0
    whole = elf([(".text.kernel", 512)])
    assert section_bytes(whole[:cut], ".text.") == 0
    assert section_bytes(whole[:64] + tail, ".nv.local.") == 0
