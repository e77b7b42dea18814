"""The Triton kernels. What the compiler made of them is data (`tools/build_triton_kernel_rows.py` remakes it); what
they compute is checked on the CPU by Triton's interpreter where torch and Triton are installed."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tilewright.errors import InputError, MissingPartError
from tilewright.hardware.names import resolve_gpu
from tilewright.kernels.triton_tiles import Tile, for_steps, tile_of

REPO = Path(__file__).parents[2]
DATA = REPO / "tests" / "data"
SHAPES = ((256, 8), (32, 1), (128, 4), (128, 8), (8, 2))
TILE = ("block_n", "block_m", "block_k", "warps", "stages", "weights_left")
TOKENS = (1, 4, 16, 64, 256, 1024, 4096)


def rows() -> list[dict[str, Any]]:
    with gzip.open(DATA / "triton_kernels.jsonl.gz", "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def has(*modules: str) -> bool:
    return all(importlib.util.find_spec(name) is not None for name in modules)


def test_everything_that_was_compiled_fits_the_gpu_and_spills_nothing() -> None:
    limits = {90: resolve_gpu("h200-sxm"), 100: resolve_gpu("b200"), 120: resolve_gpu("rtx-pro-6000-server")}
    found = rows()
    assert {row["sm"] for row in found} == {90, 100, 120}
    for row in found:
        assert "error" not in row, row
        assert row["target"] == f"sm_{row['sm']}a"
        limit = limits[row["sm"]].smem_optin_bytes
        assert limit is not None
        assert row["shared"] <= limit, row
        assert row["stack"] == row["local"] == 0, row
        assert row["registers"] <= 255


@pytest.mark.parametrize(
    ("sm", "ptx", "sass"),
    [
        (100, "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale", "UTCOMMA"),
        (120, "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
         "OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X"),
    ],
)  # fmt: skip
def test_w4a4_is_one_block_scaled_mma(sm: int, ptx: str, sass: str) -> None:
    """Not a decode and a bf16 product, which is what Triton falls back to without saying so."""
    mine = [row for row in rows() if row["sm"] == sm and row["kernel"] == "w4a4_kernel"]
    assert len(mine) >= 4
    for row in mine:
        assert len(row["ptx_mma"]) == 1
        assert row["ptx_mma"][0].startswith(ptx)
        assert len(row["sass_mma"]) == 1
        assert row["sass_mma"][0].startswith(sass)


def test_w4a16_multiplies_in_bf16_on_the_tensor_cores() -> None:
    names = {90: ("HMMA", "HGMMA"), 100: ("HMMA", "UTCHMMA"), 120: ("HMMA",)}
    for row in rows():
        if row["kernel"] == "w4a16_kernel":
            assert all(name.startswith(names[row["sm"]]) for name in row["sass_mma"]), row
            assert row["sass_mma"]


def test_every_tile_of_the_table_was_compiled() -> None:
    compiled = {(row["kernel"], row["sm"], Tile(*(row[name] for name in TILE))) for row in rows()}
    for experts, topk in SHAPES:
        for tokens in TOKENS:
            for kernel, activations, targets in (
                ("w4a16_kernel", "bf16", (90, 100, 120)), ("w4a4_kernel", "nvfp4", (100, 120)),
            ):  # fmt: skip
                tile = tile_of(tokens * topk, experts, activations)  # type: ignore[arg-type]
                for sm in targets:
                    for steps in (1, 2, 23):
                        assert (kernel, sm, for_steps(tile, steps)) in compiled


def test_turns_divide_the_steps() -> None:
    """2880 values of K are 23 steps of 128, an odd number: a turn of two would read the next row's codes."""
    tile = Tile(64, 16, 256, 4, 3)
    assert for_steps(tile, 2).block_k == 256
    assert for_steps(tile, 23).block_k == 128
    with pytest.raises(InputError, match="multiple of 128, not 64"):
        for_steps(Tile(64, 16, 64, 4, 3), 1)


LAYER = """
import os, sys, json
import torch
from tilewright.errors import InputError
from tilewright.bench import reference as bench_reference
from tilewright.kernels import Tile, fused_moe_triton, grouped_gemm_triton, pack_triton, unpack_triton
from tilewright.kernels import reference
from tilewright.kernels.triton_moe import quantise

def weights(experts, rows, k, seed):
    draw = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 256, (experts, rows, k // 2), dtype=torch.uint8, generator=draw)
    scales = torch.randint(40, 80, (experts, rows, k // 16), dtype=torch.uint8, generator=draw)
    return codes, scales.view(torch.float8_e4m3fn), torch.rand((experts, 2), generator=draw) * 0.1

def apart(out, want):
    return float((out.float() - want).norm() / want.norm())

torch.manual_seed(0)
found = {}
experts, hidden, inter, tokens, topk = 5, 176, 64, 7, 2
up, down = weights(experts, 2 * inter, hidden, 1), weights(experts, hidden, inter, 2)
down = (down[0], down[1], down[2][:, 0].contiguous())
w13, w2 = pack_triton(*up, gated=True), pack_triton(*down)
found["unpack"] = bool(torch.equal(unpack_triton(w13), reference.dequantise(*up, gated=True)))
found["unpack"] &= bool(torch.equal(unpack_triton(w2), reference.dequantise(*down)))
x = torch.randn(tokens, hidden).bfloat16()
ids = torch.stack([torch.randperm(experts)[:topk] for _ in range(tokens)]).int()
ids[2, 1], ids[3, 0] = -1, 77  # on other GPUs
router = torch.rand(tokens, topk)
want = reference.fused_moe(x, unpack_triton(w13), unpack_triton(w2), ids, router)
for tile in (Tile(32, 16, 128, 4, 2), Tile(64, 16, 256, 4, 2), Tile(32, 16, 128, 4, 2, weights_left=True)):
    for kind in ("bf16", "nvfp4"):
        out = fused_moe_triton(x, w13, w2, router, ids, activations=kind, tile=tile)
        found[f"moe {kind} {tile.block_k} {tile.weights_left}"] = apart(out, want)
w2 = pack_triton(*weights(experts, 48, hidden, 3)[:2], torch.ones(experts))
plain = grouped_gemm_triton(x, w2, ids, tile=Tile(32, 16, 128, 4, 2))
found["gemm"] = apart(plain, reference.grouped_gemm(x, unpack_triton(w2), ids, topk))
found["elsewhere"] = float(plain[2 * topk + 1].float().abs().max() + plain[3 * topk].float().abs().max())
one = torch.zeros_like(ids)
hot = grouped_gemm_triton(x, w2, one, tile=Tile(32, 16, 128, 4, 2))
found["one expert"] = apart(hot, reference.grouped_gemm(x, unpack_triton(w2), one, topk))
# What is quantised at run time is what the format defines, to the bit, but for scales halfway between two e4m3 values:
# the interpreter rounds those up, hardware to even. A row of zeros is included.
x[1] = 0
codes, scales, factors = quantise(x, 2)
same, met = True, 0
for row in range(tokens):
    want_codes, want_scales, want_factor = bench_reference.quantise(torch, x[row : row + 1])
    nibbles = torch.stack([want_codes[0] & 15, want_codes[0] >> 4], -1).reshape(-1, 2, 8)
    want_codes, want_scales = (nibbles[:, 0] | nibbles[:, 1] << 4), want_scales[0].view(torch.uint8).int()
    got = scales[row, : hidden // 16].view(torch.uint8).int()
    same &= bool(((got - want_scales).abs() <= 1).all()) and bool(factors[row] == want_factor)
    equal = got == want_scales
    met += int(equal.sum())
    same &= torch.equal(codes[row, : hidden // 2].reshape(-1, 8)[equal], want_codes[equal])
    same &= not codes[row, hidden // 2 :].any()
found["blocks equal"] = met / (tokens * hidden // 16)
found["quantise"] = bool(same)
# The custom op and the module around it.
from tilewright.kernels import moe_module, register_triton_op
w13, w2 = pack_triton(*up, gated=True), pack_triton(*down)
x, ids = torch.randn(tokens, hidden).bfloat16(), torch.stack([torch.randperm(experts)[:topk] for _ in range(tokens)])
parts = [w13.codes, w13.scales.view(torch.uint8), w13.factor, w2.codes, w2.scales.view(torch.uint8), w2.factor]
found["opcheck"] = torch.library.opcheck(register_triton_op(), (x, *parts, router, ids, hidden, inter, "bf16"))
layer = moe_module(w13, w2)
found["state"] = sorted(layer.state_dict())
found["widths refused"] = []
for width in (hidden // 2, hidden + 64, 2 * hidden):
    try:
        layer(torch.zeros(tokens, width, dtype=torch.bfloat16), router, ids)
    except InputError as fault:
        found["widths refused"].append(str(fault))

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.experts = torch.nn.Linear(hidden, experts, bias=False, dtype=torch.bfloat16), layer

    def forward(self, x):
        weights, chosen = torch.softmax(self.gate(x).float(), -1).topk(topk, -1)
        return x + self.experts(x, weights, chosen)

block = Block()
with torch.no_grad():
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    found["compiled"] = all(torch.equal(compiled(x[:count]), block(x[:count])) for count in (7, 3))
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The kernels run in Triton's interpreter, in a process of its own (it changes Triton for good)."""
    if not has("torch", "triton", "numpy"):
        pytest.skip("torch, triton or numpy is not installed")
    script = tmp_path_factory.mktemp("interpreted") / "layer.py"
    script.write_text(LAYER)
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(REPO / "src")}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=300)
    if "only 0-dimensional arrays" in done.stderr:
        pytest.skip("this Triton's interpreter does not go with this NumPy")
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_layout_and_quantisation_are_exact(interpreted: dict[str, Any]) -> None:
    assert interpreted["unpack"]
    assert interpreted["quantise"]
    assert interpreted["blocks equal"] > 0.9
    assert interpreted["elsewhere"] == 0


def test_the_module_knows_its_width(interpreted: dict[str, Any]) -> None:
    """Of x of another width it would read past the weights, or not all of them."""
    assert len(interpreted["widths refused"]) == 3


def test_products_are_right(interpreted: dict[str, Any]) -> None:
    """The interpreter cuts to bf16 where hardware rounds: 0.004 a product and 0.009 a layer instead of 0.0017."""
    assert interpreted["gemm"] < 0.006
    assert interpreted["one expert"] < 0.006
    for how in ("128 False", "256 False", "128 True"):
        assert interpreted[f"moe bf16 {how}"] < 0.015
        # Both products' inputs in NVFP4: what the format itself costs.
        assert 0.05 < interpreted[f"moe nvfp4 {how}"] < 0.2


def test_the_custom_op_passes_torchs_own_checks(interpreted: dict[str, Any]) -> None:
    assert len(interpreted["opcheck"]) >= 4
    assert set(interpreted["opcheck"].values()) == {"SUCCESS"}


def test_the_module_compiles_whole(interpreted: dict[str, Any]) -> None:
    assert interpreted["compiled"]
    assert len(interpreted["state"]) == 6


@pytest.mark.parametrize(("absent", "what"), [("torch", "PyTorch"), ("triton", "Triton")])
def test_a_missing_package_names_the_extra(absent: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing the library needs neither; using it says what to install."""
    from tilewright.kernels import parts, triton_moe

    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named '{absent}'", name=absent)

    monkeypatch.setattr(parts, "import_module", missing)
    monkeypatch.setattr(triton_moe, "import_module", missing)
    with pytest.raises(MissingPartError, match=rf"{what}.*pip install 'tilewright\[bench\]'") as caught:
        parts.torch_module() if absent == "torch" else triton_moe._kernels()
    assert caught.value.exit_code == 3


def test_the_page_shows_what_was_compiled() -> None:
    spec = importlib.util.spec_from_file_location("rows_tool", REPO / "tools" / "build_triton_kernel_rows.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.table(rows()) in (REPO / "docs" / "kernels.md").read_text("utf-8")
