"""What `build_data.py` decides about GPUs, each decision with its reason.

The numbers in `reason` ("notes 3") are those of the facts folder's notes.md ("GPU facts").
"""

from __future__ import annotations

from typing import Any

CCCL = (
    "https://github.com/NVIDIA/cccl/blob/004ad1986064aaa82892ed00d0dbda88b90fa6e6/"
    "libcudacxx/include/cuda/__device/arch_traits.h"
)
AIC = "https://github.com/ai-dynamo/aiconfigurator/blob/095f58a51c4ca8e61b66ec108d86f223f8d559ce/aic-core/src/aiconfigurator_core/systems/"
COMMUNITY = "(community repository)"
H200_RUN = "facts/h200_nvfp4_moe.md: measured on one NVIDIA H200, 2026-12-02"
HMC = "hmc-tech.com"

# The catalogue's entries: key, the name shown, other exact names, and the words of the name.
# `words` are all the words a name of this GPU may contain; `needs` are those it must contain to mean this GPU and no
# other. A name that fits several entries and satisfies the `needs` of none is asked back.
RTX_PRO = ["rtx", "pro", "blackwell"]
IDENTITY: dict[str, dict[str, Any]] = {
    "RTX PRO 6000 Blackwell Workstation": {
        "key": "rtx-pro-6000-workstation",
        "name": "RTX PRO 6000 Blackwell Workstation Edition",
        "words": [*RTX_PRO, "6000", "workstation", "edition", "ws", "96gb"],
        "needs": [["6000", "workstation"], ["6000", "ws"]],
    },
    "RTX PRO 6000 Blackwell Max-Q": {
        "key": "rtx-pro-6000-max-q",
        "name": "RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        "words": [*RTX_PRO, "6000", "maxq", "workstation", "edition", "ws", "96gb"],
        "needs": [["6000", "maxq"]],
    },
    "RTX PRO 6000 Blackwell Server Edition": {
        "key": "rtx-pro-6000-server",
        "name": "RTX PRO 6000 Blackwell Server Edition",
        "words": [*RTX_PRO, "6000", "server", "edition", "se", "96gb"],
        "needs": [["6000", "server"], ["6000", "se"]],
    },
    "RTX PRO 5000 Blackwell 48GB": {
        "key": "rtx-pro-5000",
        "name": "RTX PRO 5000 Blackwell 48 GB",
        "words": [*RTX_PRO, "5000", "48gb"],
        "needs": [["5000"]],
    },
    "RTX PRO 4500 Blackwell": {
        "key": "rtx-pro-4500",
        "name": "RTX PRO 4500 Blackwell",
        "words": [*RTX_PRO, "4500", "32gb"],
        "needs": [["4500"]],
    },
    "GeForce RTX 5090": {
        "key": "rtx-5090",
        "name": "GeForce RTX 5090",
        "words": ["rtx", "blackwell", "5090", "32gb"],
        "needs": [["5090"]],
    },
    "GeForce RTX 5080": {
        "key": "rtx-5080",
        "name": "GeForce RTX 5080",
        "words": ["rtx", "blackwell", "5080", "16gb"],
        "needs": [["5080"]],
    },
    "GB10 (DGX Spark)": {
        "key": "gb10",
        "name": "GB10 (DGX Spark)",
        "words": ["gb10", "dgx", "spark", "grace", "blackwell", "superchip", "128gb"],
        "needs": [["gb10"], ["spark"]],
    },
    "Jetson Thor": {
        "key": "jetson-thor",
        "name": "Jetson Thor",
        "words": ["jetson", "agx", "thor", "t5000", "developer", "kit", "blackwell"],
        "needs": [["thor"], ["t5000"]],
    },
    "A100 80GB SXM": {
        "key": "a100-80gb-sxm",
        "name": "A100 SXM 80 GB",
        "words": ["a100", "sxm", "sxm4", "80gb", "ampere"],
        "needs": [["a100"]],
        "aliases": ["a100_sxm"],
    },
    "GeForce RTX 4090": {
        "key": "rtx-4090",
        "name": "GeForce RTX 4090",
        "words": ["rtx", "ada", "4090", "24gb"],
        "needs": [["4090"]],
    },
    "L40S": {"key": "l40s", "name": "L40S", "words": ["l40s", "ada", "48gb"], "needs": [["l40s"]]},
    "L4": {"key": "l4", "name": "L4", "words": ["l4", "ada", "24gb"], "needs": [["l4"]]},
    "H100 SXM": {
        "key": "h100-sxm",
        "name": "H100 SXM 80 GB",
        "words": ["h100", "sxm", "sxm5", "80gb", "hbm3", "hopper"],
        "needs": [["h100", "sxm"], ["h100", "sxm5"], ["h100", "hbm3"]],
    },
    "H100 PCIe": {
        "key": "h100-pcie",
        "name": "H100 PCIe 80 GB",
        "words": ["h100", "pcie", "80gb", "hbm2e", "hopper"],
        "needs": [["h100", "pcie"], ["h100", "hbm2e"]],
    },
    "H200 SXM": {
        "key": "h200-sxm",
        "name": "H200 SXM 141 GB",
        "words": ["h200", "sxm", "sxm5", "141gb", "hbm3e", "hopper"],
        "needs": [["h200"]],
    },
    "H20": {"key": "h20", "name": "H20 96 GB", "words": ["h20", "96gb", "hbm3", "sxm", "hopper"], "needs": [["h20"]]},
    "B200 SXM": {
        "key": "b200-sxm",
        "name": "B200 SXM 180 GB",
        "words": ["b200", "sxm", "sxm6", "hgx", "180gb", "hbm3e", "blackwell"],
        "needs": [["b200"]],
    },
    "GB200": {
        "key": "gb200",
        "name": "GB200 (one GPU of it)",
        "words": ["gb200", "grace", "blackwell", "superchip", "nvl72", "sxm"],
        "needs": [["gb200"]],
    },
    "B300 SXM": {
        "key": "b300-sxm",
        "name": "B300 SXM",
        "words": ["b300", "sxm", "sxm6", "ac", "hgx", "blackwell", "ultra", "hbm3e"],
        "needs": [["b300"]],
    },
    "GB300": {
        "key": "gb300",
        "name": "GB300 (one GPU of it)",
        "words": ["gb300", "grace", "blackwell", "ultra", "superchip", "nvl72", "sxm"],
        "needs": [["gb300"]],
    },
}

# Figures of a row that describe the architecture, not the product: kept once a compute capability.
ARCHITECTURE_FIELDS = (
    "smem_per_sm_bytes",
    "smem_optin_max_per_block_bytes",
    "smem_reserved_per_block_bytes",
    "max_registers_per_sm",
    "max_registers_per_thread",
    "max_threads_per_sm",
    "max_blocks_per_sm",
    "max_threads_per_block",
    "warp_size",
)

HALF_RATE = (
    "newer pages of the same site print this card at half the FP16-accumulate rate while they print PRO 6000 and PRO "
    "2000 at full rate, and PRO 6000 is measured at full rate: unresolved (notes 3)"
)

# (GPU, field) -> what is decided about the figure in the facts. Keys:
#   value, kind, source, note   replace those of the facts
#   expect                      the value the facts must hold for the decision to apply (the build stops otherwise)
#   rejected                    readings that were not taken: value, source, why
DECISIONS: dict[tuple[str, str], dict[str, Any]] = {
    # notes 1: bandwidth of the Server Edition
    ("RTX PRO 6000 Blackwell Server Edition", "memory_bandwidth_gbs"): {
        "expect": 1597,
        "value": 1597,
        "note": "memory clock 12,481 MHz x 128 B = 1,597.6 GB/s; jarvislabs says roughly 1.6 TB/s "
        "(https://jarvislabs.ai/blog/nvfp4-rtxpro-6000)",
        "rejected": [
            {
                "value": 1792,
                "source": AIC + "rtx_pro_6000_server.yaml",
                "why": "the Workstation Edition's figure: GLM-5's MoE layer at TP1, 32 tokens, reads all 256 experts, "
                "5.436 GB in 3.74 ms = 1,453 GB/s, 91% of 1,597 (notes 1)",
            },
            {
                "value": 5500,
                "source": COMMUNITY,
                "why": "a '4 GB memcopy' at 680 it/s cannot move 4 GB an iteration: the buffer's label is wrong, so it "
                "is no bandwidth at all (notes 1)",
            },
        ],
    },
    ("RTX PRO 6000 Blackwell Server Edition", "memory_bandwidth_measured_gbs"): {
        "value": 1450,
        "kind": "measured",
        "source": "measurements: aic_moe_glm5_rtx_pro_6000_server_sglang_nvfp4 (aiconfigurator), TP1, 32 tokens",
        "note": "5.436 GB of routed experts in 3.74 ms = 1,453 GB/s; taken as about 1,450 effective (notes 1)",
    },
    ("RTX PRO 6000 Blackwell Workstation", "memory_bandwidth_gbs"): {
        "expect": 1792,
        "note": "under compute (P1) the memory clock is 13,365 MHz = 1,710 GB/s by clock x 128 B",
    },
    # notes 2: Max-Q clocks
    ("RTX PRO 6000 Blackwell Max-Q", "boost_clock_mhz"): {
        "expect": 2288,
        "note": "fits the published 110 TFLOPS FP32",
        "rejected": [
            {
                "value": 2617,
                "source": "https://cputronic.com/gpu/compare/nvidia-geforce-rtx-4090-vs-nvidia-rtx-pro-6000-blackwell-max-q",
                "why": "does not fit the published 110 TFLOPS FP32; 2,617 is the Workstation Edition's (notes 2)",
            }
        ],
    },
    ("RTX PRO 6000 Blackwell Max-Q", "memory_clock_mhz"): {
        "value": None,
        "rejected": [
            {
                "value": 15865,
                "source": COMMUNITY,
                "why": "one contributor's card, likely overclocked: 15,865 MHz x 128 B = 2,031 GB/s, 13% over the "
                "published bandwidth (notes 2)",
            }
        ],
    },
    ("RTX PRO 6000 Blackwell Max-Q", "memory_bandwidth_gbs"): {"expect": 1792, "note": "printed as 1.79 TB/s"},
    ("RTX PRO 6000 Blackwell Server Edition", "memory_clock_mhz"): {
        "value": 12481,
        "kind": "measured",
        "source": COMMUNITY,
        "note": "read under load; measurements: power_limit_sweep",
    },
    ("RTX PRO 6000 Blackwell Workstation", "memory_clock_mhz"): {
        "value": 13365,
        "kind": "measured",
        "source": COMMUNITY,
        "note": "read under compute (P1); measurements: power_limit_sweep",
    },
    ("RTX PRO 6000 Blackwell Server Edition", "power_limit_min_w"): {
        "value": 300,
        "source": AIC + "rtx_pro_6000_server.yaml",
        "note": "power limit range 300-600 W",
    },
    ("RTX PRO 6000 Blackwell Workstation", "power_limit_min_w"): {
        "value": 150,
        "source": COMMUNITY,
        "note": "power limit range 150-600 W",
    },
    ("RTX PRO 6000 Blackwell Server Edition", "boost_clock_mhz"): {
        "expect": 2430,
        "kind": "measured",
        "note": "largest SM clock that the node reported",
    },
    ("RTX PRO 6000 Blackwell Server Edition", "tflops_bf16_fp32acc_dense"): {
        "expect": 467.8,
        "kind": "derived",
        "note": "architecture rate scaled to 2,430 MHz",
    },
    ("RTX PRO 6000 Blackwell Server Edition", "tflops_fp8_fp32acc_dense"): {
        "expect": 935.6,
        "kind": "derived",
        "note": "architecture rate scaled to 2,430 MHz",
    },
    ("RTX PRO 6000 Blackwell Server Edition", "tflops_fp4_dense"): {
        "expect": 1871.2,
        "kind": "derived",
        "note": "architecture rate scaled to 2,430 MHz",
    },
    ("RTX PRO 6000 Blackwell Server Edition", "int8_tops_dense"): {
        "expect": 935.6,
        "kind": "derived",
        "note": "architecture rate scaled to 2,430 MHz",
    },
    # notes 3: rate with FP32 accumulation
    **{
        (gpu, field): {
            "expect": printed,
            "value": None,
            "note": HALF_RATE,
            "rejected": [{"value": printed, "source": "facts", "why": HALF_RATE}],
        }
        for gpu, field, printed in (
            ("RTX PRO 5000 Blackwell 48GB", "tflops_bf16_fp32acc_dense", 147.4),
            ("RTX PRO 5000 Blackwell 48GB", "tflops_fp8_fp32acc_dense", 294.8),
            ("RTX PRO 4500 Blackwell", "tflops_bf16_fp32acc_dense", 109.9),
            ("RTX PRO 4500 Blackwell", "tflops_fp8_fp32acc_dense", 219.7),
        )
    },
    ("GB10 (DGX Spark)", "tflops_fp8_fp32acc_dense"): {
        "expect": 124,
        "value": None,
        "note": "at least 188, measured on the block-scaled path",
        "rejected": [
            {
                "value": 124,
                "source": "facts",
                "why": "claimed half rate, contradicted by 188 TFLOPS measured (see the best GEMMs measured; notes 3)",
            }
        ],
    },
    ("GB10 (DGX Spark)", "tflops_bf16_fp32acc_dense"): {
        "expect": 62,
        "value": None,
        "rejected": [
            {
                "value": 62,
                "source": "facts",
                "why": "the same page's half rate is contradicted by measurement for FP8, and this half is unverified "
                "(notes 3)",
            }
        ],
    },
    # notes 4: L2
    ("B200 SXM", "l2_bytes"): {
        "expect": 132120576,
        "source": "https://docs.nvidia.com/cuda/blackwell-tuning-guide",
        "note": "126 MB; Chips and Cheese agree",
        "rejected": [
            {"value": 65500000, "source": HMC, "why": "looks like one die of the two (notes 4)"},
            {"value": 96000000, "source": "blog posts", "why": "contradicts NVIDIA's tuning guide (notes 4)"},
        ],
    },
    ("L40S", "l2_bytes"): {
        "expect": 100663296,
        "note": "L40 pages, same AD102 die; unconfirmed for the L40S itself",
        "rejected": [
            {"value": 48000000, "source": "m.reach.dog", "why": "one reseller against the L40 pages (notes 4)"}
        ],
    },
    ("H200 SXM", "l2_bytes"): {
        "expect": 52428800,
        "value": 62914560,
        "kind": "measured",
        "source": H200_RUN,
        "note": "read from the device as 62.9 MB = 60 MiB",
        "rejected": [
            {
                "value": 52428800,
                "source": "https://glennklockwood.com/garden/processors/h100",
                "why": "the H100's figure, taken over because the die is the same; the device itself reports 60 MiB",
            }
        ],
    },
    # notes 5: B200 memory
    ("B200 SXM", "memory_gb"): {
        "expect": 180,
        "note": "180 GiB usable",
        "rejected": [
            {"value": 192, "source": "marketing pages", "why": "raw capacity; 180 GiB are usable on HGX (notes 5)"}
        ],
    },
    ("B200 SXM", "memory_bandwidth_gbs"): {
        "expect": 7700,
        "note": "HGX B200",
        "rejected": [{"value": 8000, "source": "marketing pages", "why": "up to; HGX boards ship 7.7 TB/s (notes 5)"}],
    },
    ("B200 SXM", "sm_count"): {
        "expect": 148,
        "rejected": [
            {"value": 180, "source": "blog posts", "why": "wrong: 148 SMs are enabled (notes 5)"},
            {"value": 192, "source": "blog posts", "why": "wrong: 148 SMs are enabled (notes 5)"},
        ],
    },
    ("B200 SXM", "tflops_fp8_fp32acc_dense"): {
        "expect": 4500,
        "rejected": [{"value": 2250, "source": "blog posts", "why": "the BF16 rate printed as FP8 dense (notes 5)"}],
    },
    ("B200 SXM", "tflops_fp4_sparse"): {"expect": 18000, "kind": "derived"},
    ("H200 SXM", "tflops_fp8_fp32acc_dense"): {
        "expect": 1978,
        "rejected": [{"value": 3940, "source": "blog posts", "why": "the sparse rate printed as dense (notes 5)"}],
    },
    # notes 6: Blackwell Ultra
    ("B300 SXM", "tflops_fp4_dense"): {
        "expect": 14000,
        "note": "FP4 with sparsity is 18,000: not twice the dense rate on Blackwell Ultra (notes 6)",
    },
    ("B300 SXM", "int8_tops_dense"): {"expect": 153.5, "note": "INT8 is cut on Blackwell Ultra (notes 6)"},
    ("GB300", "sm_count"): {
        "expect": None,
        "rejected": [
            {
                "value": 160,
                "source": "https://www.io-tech.fi/uutinen/nvidia-esitteli-blackwell-ultraa-ja-gb10-superchip-piirien-saloja-hotchips-tapahtumassa/",
                "why": "the full die on slides; 148 are read on a B300, and nobody published what a GB300 enables "
                "(notes 6)",
            }
        ],
    },
    # notes 7: GB10
    ("GB10 (DGX Spark)", "memory_bandwidth_gbs"): {
        "expect": 273,
        "note": "as shipped",
        "rejected": [
            {
                "value": 301,
                "source": "http://www.ggmania.com/?smsid=63712",
                "why": "Hot Chips slide, LPDDR5X-9400; what shipped is 273 (notes 7)",
            }
        ],
    },
    ("GB10 (DGX Spark)", "tflops_fp4_dense"): {
        "expect": 500,
        "kind": "derived",
        "note": "about 1,000 with sparsity / 2; 356 measured",
        "rejected": [{"value": 1000, "source": "marketing pages", "why": "with sparsity (notes 7)"}],
    },
    # Measured on the device by this project's facts.
    ("H200 SXM", "memory_bandwidth_measured_gbs"): {
        "value": 4540,
        "kind": "measured",
        "source": H200_RUN,
        "note": "read-only kernel over 4 GB; a copy reaches 4,285 read + write; 28 MB read alone reach 3,380",
    },
    ("H200 SXM", "tflops_bf16_measured"): {
        "value": 796,
        "kind": "measured",
        "source": H200_RUN,
        "note": "8192^3 torch matmul",
    },
    # What the driver reports, where the source says so: the exact base of every memory calculation.
    ("GB200", "memory_mib_reported"): {"value": 189471, "kind": "measured", "source": AIC + "gb200.yaml"},
    ("B300 SXM", "memory_mib_reported"): {
        "value": 275040,
        "kind": "measured",
        "source": AIC + "b300_sxm.yaml",
        "note": "sglang PR 38215 shows 267.7 GiB",
    },
    ("GB300", "memory_mib_reported"): {"value": 284208, "kind": "measured", "source": AIC + "gb300.yaml"},
    # GeForce rates published with sparsity and halved here.
    ("GeForce RTX 5090", "tflops_fp16_fp16acc_dense"): {"expect": 419.2, "kind": "derived"},
    ("GeForce RTX 5090", "tflops_fp8_fp16acc_dense"): {"expect": 838, "kind": "derived"},
    ("GeForce RTX 5090", "tflops_fp4_dense"): {"expect": 1676, "kind": "derived"},
    ("GeForce RTX 5080", "tflops_fp4_dense"): {"expect": 900.5, "kind": "derived"},
}

# notes 8 and 9: what circulates about SM12x shared memory and threads, and is wrong.
ARCHITECTURE_DECISIONS: dict[tuple[str, str], dict[str, Any]] = {
    **{
        (cc, "smem_optin_max_per_block_bytes"): {
            "expect": 101376,
            "rejected": [
                {"value": 102400, "source": "issue threads", "why": "the figure of an SM, not of a block (notes 8)"},
                {"value": 49152, "source": "community posts", "why": "the limit without opt-in (notes 8)"},
                {"value": 233472, "source": "https://github.com/NVIDIA/cutlass/issues/3144", "why": "SM100's (W1)"},
            ],
        }
        for cc in ("12.0", "12.1")
    },
    **{
        (cc, "max_threads_per_sm"): {
            "expect": 1536,
            "rejected": [
                {"value": 2048, "source": "blog posts", "why": "SM90's and SM100's; CCCL says 1,536 (notes 9)"}
            ],
        }
        for cc in ("12.0", "12.1")
    },
}

# Tensor-core machinery: what an architecture has or lacks.
ARCHITECTURE_EXTRAS: dict[str, dict[str, dict[str, Any]]] = {
    cc: {
        "tensor_memory": {"value": False, "source": COMMUNITY, "note": "no TMEM"},
        "wgmma": {"value": False, "source": COMMUNITY},
        "tcgen05": {"value": False, "source": COMMUNITY},
        "tma_multicast": {
            "value": False,
            "source": COMMUNITY,
            "note": "CUTLASS's SM120 collectives demand a 1x1x1 cluster; that is a demand of the collectives, not "
            "proof that the hardware launches no clusters",
        },
    }
    for cc in ("12.0", "12.1")
}
