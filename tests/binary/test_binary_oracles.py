"""Freshly compiled binaries against the tools that know: `ptxas -v` and, where it is installed, `cuobjdump`."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tilewright.binary.cubin import read_cubin
from tilewright.binary.decompress import zstd_module
from tilewright.binary.inspect import inspect
from tilewright.binary.model import Image

pytestmark = pytest.mark.compiler

DATA = Path(__file__).parent.parent / "data" / "binary"
ARCHS = ["sm_80", "sm_90", "sm_90a", "sm_100a", "sm_120", "sm_120a", "sm_120f", "sm_121a"]

SOURCE = r"""
#include <cstdint>
__constant__ float table[64];

// spills of many widths, two kinds of launch bounds, clusters, barriers, static and dynamic shared memory, recursion
extern "C" __global__ void __maxnreg__(32) wide(float4* out, const float4* in) {
  float4 v[24];
#pragma unroll
  for (int i = 0; i < 24; ++i) v[i] = in[i * 64 + threadIdx.x];
#pragma unroll
  for (int i = 0; i < 24; ++i) {
    v[i].x = v[i].x * v[(i + 5) % 24].y + v[(i + 13) % 24].w;
    v[i].z = v[i].z * v[(i + 7) % 24].x + v[(i + 17) % 24].y;
  }
#pragma unroll
  for (int i = 0; i < 24; ++i) out[i * 64 + threadIdx.x] = v[i];
}
extern "C" __global__ void __launch_bounds__(384, 1) bounded(float* out, const float* in) {
  __shared__ float a[1000];
  extern __shared__ float more[];
  a[threadIdx.x] = in[threadIdx.x];
  more[threadIdx.x] = table[threadIdx.x & 63];
  __syncthreads();
  out[threadIdx.x] = a[threadIdx.x ^ 1] + more[threadIdx.x ^ 3];
}
extern "C" __global__ void named(float* out) {
  asm volatile("bar.sync 3, 64;");
  asm volatile("bar.sync 5, 64;");
  out[0] = 1;
}
__device__ __noinline__ float twice(float* p, int n) {
  float v[32];
  for (int i = 0; i < 32; ++i) v[i] = p[i * n];
  float s = 0;
  for (int i = 0; i < n; ++i) s += v[i & 31];
  return s;
}
extern "C" __global__ void calls(float* out, int n) { out[threadIdx.x] = twice(out, n) + twice(out + 1, n); }
__device__ float recur(float x, int n) { return n == 0 ? x : recur(x * 1.5f, n - 1) + recur(x, n - 2); }
extern "C" __global__ void recursive(float* out, int n) { out[0] = recur(out[1], n); }
template <int N> struct Wrapped { __device__ static void run(float* out) { out[threadIdx.x] = N; } };
namespace space {
template <class T> __global__ void kernel(float* out, T big) { Wrapped<3>::run(out); out[0] = big.v[5]; }
}
struct Big { float v[200]; };
template __global__ void space::kernel<Big>(float*, Big);
"""


def tool(name: str, *args: str, cwd: Path) -> str:
    """What a tool of the CUDA toolkit printed."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} on PATH")
    done = subprocess.run([found, *args], cwd=cwd, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def cuobjdump(*args: str) -> str:
    beside = Path(sysconfig.get_paths()["purelib"]) / "nvidia" / "cu13" / "bin" / "cuobjdump"
    found = shutil.which("cuobjdump") or (str(beside) if beside.exists() else None)
    if found is None:
        pytest.skip("no cuobjdump (pip install nvidia-cuda-cuobjdump)")
    done = subprocess.run([found, *args], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def ptxas_figures(text: str) -> dict[str, dict[str, int]]:
    """Registers, stack, spills, barriers and shared memory of each entry function in the output of `ptxas -v`."""
    figures: dict[str, dict[str, int]] = {}
    for part in text.split("Compiling entry function '")[1:]:
        name = part[: part.index("'")]
        own = part[part.index(f"Function properties for {name}") :]
        frame = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", own)
        used = re.search(r"Used (\d+) registers(?:, used (\d+) barriers)?", own)
        shared = re.search(r"Used [^\n]* (\d+) bytes smem", own)
        assert frame is not None
        assert used is not None
        figures[name] = {
            "registers": int(used[1]),
            "stack_bytes": int(frame[1]),
            "spill_store_bytes": int(frame[2]),
            "spill_load_bytes": int(frame[3]),
            "shared_bytes": int(shared[1]) if shared else 0,
            "barriers": int(used[2] or 0),
        }
    return figures


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, str]]:
    """{arch: (cubin, what ptxas printed)} of SOURCE: PTX of the oldest target, assembled for all."""
    folder = tmp_path_factory.mktemp("oracles")
    (folder / "k.cu").write_text(SOURCE)
    tool("nvcc", "-ptx", "-arch=compute_80", "-o", "k.ptx", "k.cu", cwd=folder)
    made: dict[str, tuple[Path, str]] = {}
    for arch in ARCHS:
        text = tool("ptxas", "-v", f"-arch={arch}", "-o", f"{arch}.cubin", "k.ptx", cwd=folder)
        made[arch] = (folder / f"{arch}.cubin", text)
    return made


@pytest.mark.parametrize("arch", ARCHS)
def test_every_figure_of_ptxas(built: dict[str, tuple[Path, str]], arch: str) -> None:
    path, text = built[arch]
    cubin = read_cubin(path.read_bytes())
    assert cubin.target.name() == arch
    wanted = ptxas_figures(text)
    assert len(wanted) == 6
    assert wanted["wide"]["spill_store_bytes"] > 0
    got = {kernel.name: {key: getattr(kernel, key) for key in wanted[kernel.name]} for kernel in cubin.kernels}
    assert got == wanted


@pytest.mark.parametrize("arch", ARCHS)
def test_resource_usage_as_cuobjdump_lists_it(built: dict[str, tuple[Path, str]], arch: str) -> None:
    path, _ = built[arch]
    text = cuobjdump("-res-usage", str(path))
    wanted = {
        name: tuple(map(int, figures))
        for name, *figures in re.findall(
            r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:0 CONSTANT\[0\]:(\d+)", text
        )
    }
    got = {
        kernel.name: (
            kernel.registers,
            kernel.stack_bytes,
            (kernel.shared_bytes or 0) + (kernel.shared_reserved_bytes or 0),
            kernel.constant_bytes,
        )
        for kernel in read_cubin(path.read_bytes()).kernels
    }
    if "recursive" in wanted:  # its stack is not known at compile time; cuobjdump has its own way to say so
        wanted["recursive"] = (*wanted["recursive"][:1], got["recursive"][1] or 0, *wanted["recursive"][2:])
    assert got == wanted


def listed(path: Path) -> list[str]:
    """Targets in the order of `cuobjdump -lelf -lptx`: SASS, then PTX."""
    text = cuobjdump("-lelf", str(path)) + cuobjdump("-lptx", str(path))
    return re.findall(r"\.(sm_\d+[af]?)\.(?:cubin|ptx)$", text, re.MULTILINE)


def ours(images: tuple[Image, ...]) -> list[str]:
    sass = [image.target for image in images if image.kind == "sass"]
    return sass + [image.target.replace("compute_", "sm_") for image in images if image.kind == "ptx"]


@pytest.mark.parametrize("mode", ["none", "speed", "balance", "size"])
def test_images_as_cuobjdump_lists_them(built: dict[str, tuple[Path, str]], tmp_path: Path, mode: str) -> None:
    shutil.copy(built["sm_80"][0].parent / "k.ptx", tmp_path / "k.ptx")
    images = [f"--image3=kind=elf,sm={arch[3:]},file={path}" for arch, (path, _) in built.items()]
    options = ["-64", f"--compress-mode={mode}", *(["--compress-all"] if mode != "none" else [])]
    tool("fatbinary", *options, "--create=t.fatbin", *images, "--image3=kind=ptx,sm=80,file=k.ptx", cwd=tmp_path)
    (report,) = inspect(tmp_path / "t.fatbin").files
    found = report.images or ()
    assert ours(found) == [*ARCHS, "sm_80"]
    readable = mode in ("none", "speed") or zstd_module() is not None
    assert all((image.kernels is not None) == readable for image in found)
    if mode == "none":
        assert {image.compression for image in found} == {None}
        # cuobjdump 13.5 names a family target by its plain name
        assert [name.rstrip("f") for name in ours(found)] == [
            name.rstrip("f") for name in listed(tmp_path / "t.fatbin")
        ]
    else:
        assert {image.compression for image in found} == {"lz4" if mode == "speed" else "zstd"}


def test_a_linked_library_of_relocatable_code(tmp_path: Path) -> None:
    """The driver loads the linked image; what nvcc keeps for a later link counts for nothing."""
    if sys.platform != "linux":
        pytest.skip("builds a .so")
    tool(
        "nvcc",
        *("-shared", "-Xcompiler", "-fPIC", "-rdc=true", "-o", "t.so", str(DATA / "tiny.cu")),
        *("-gencode", "arch=compute_90,code=sm_90", "-gencode", "arch=compute_120f,code=sm_120f"),
        cwd=tmp_path,
    )
    (report,) = inspect(tmp_path / "t.so").files
    linked = [row.target for row in report.architectures if not row.relocatable]
    assert linked == ["sm_90", "sm_120f"]
    assert report.modules == 1
    assert {row.target for row in report.architectures if row.relocatable} == {"sm_90", "sm_120f"}


def test_a_static_library(tmp_path: Path) -> None:
    tool("nvcc", "-lib", "-o", "t.a", "-gencode", "arch=compute_90a,code=sm_90a", str(DATA / "tiny.cu"), cwd=tmp_path)
    (report,) = inspect(tmp_path / "t.a").files
    assert [row.target for row in report.architectures] == ["sm_90a"]
