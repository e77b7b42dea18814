"""What people type, and what torch and NVML report, resolves to one GPU, or is asked back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import AmbiguousNameError, InputError, UnknownNameError
from tilewright.hardware import catalogue, resolve_gpu


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("rtx-pro-6000-server", "rtx-pro-6000-server"),
        ("RTX PRO 6000 Blackwell Server", "rtx-pro-6000-server"),
        ("rtx_pro_6000_server", "rtx-pro-6000-server"),
        ("RTXPRO6000Server", "rtx-pro-6000-server"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-server"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000-workstation"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtx-pro-6000-max-q"),
        ("pro 6000 maxq", "rtx-pro-6000-max-q"),
        ("6000 ws", "rtx-pro-6000-workstation"),
        ("5090", "rtx-5090"),
        ("rtx5090", "rtx-5090"),
        ("GeForce® RTX™ 5090", "rtx-5090"),
        ("RTX(TM) 5090", "rtx-5090"),
        ("NVIDIA GeForce RTX 5090", "rtx-5090"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("GB10", "gb10"),
        ("NVIDIA GB10", "gb10"),
        ("dgx spark", "gb10"),
        ("h200", "h200-sxm"),
        ("h200_sxm", "h200-sxm"),
        ("NVIDIA H200", "h200-sxm"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb-sxm"),
        ("a100_sxm", "a100-80gb-sxm"),
        ("NVIDIA B200", "b200-sxm"),
        ("b200_sxm", "b200-sxm"),
        ("gb200", "gb200"),
        ("GB200 NVL72", "gb200"),
        ("NVIDIA B300 SXM6 AC", "b300-sxm"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA H20", "h20"),
        ("Jetson AGX Thor", "jetson-thor"),
        ("  nvidia   h200  ", "h200-sxm"),
        ("sm_121", "gb10"),
        ("12.1", "gb10"),
    ],
)
def test_names_resolve(name: str, key: str) -> None:
    assert resolve_gpu(name).key == key


def test_every_key_and_name_of_the_catalogue_resolves_to_itself() -> None:
    for gpu in catalogue():
        for name in (gpu.key, gpu.name, gpu.key.replace("-", "_"), gpu.key.upper(), *gpu.aliases):
            assert resolve_gpu(name) is gpu


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("rtx pro 6000", {"rtx-pro-6000-server", "rtx-pro-6000-workstation", "rtx-pro-6000-max-q"}),
        ("NVIDIA RTX PRO 6000 Blackwell", {"rtx-pro-6000-server", "rtx-pro-6000-workstation", "rtx-pro-6000-max-q"}),
        ("h100", {"h100-sxm", "h100-pcie"}),
        ("sm_100", {"b200-sxm", "gb200"}),
    ],
)
def test_an_ambiguous_name_is_asked_back_with_the_choices(name: str, choices: set[str]) -> None:
    with pytest.raises(AmbiguousNameError) as caught:
        resolve_gpu(name)
    assert set(caught.value.choices) == choices
    assert "differ in" in caught.value.msg


def test_the_question_says_in_which_figures_the_choices_differ() -> None:
    with pytest.raises(AmbiguousNameError, match=r"1,597 GB/s.*300 W"):
        resolve_gpu("rtx pro 6000")


@pytest.mark.parametrize("name", ["sm_120", "sm120a", "compute_120f", "12.0"])
def test_an_architecture_is_no_gpu(name: str) -> None:
    with pytest.raises(AmbiguousNameError) as caught:
        resolve_gpu(name)
    assert len(caught.value.choices) == 7


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("NVIDIA H200 NVL", "h200-sxm"),
        ("NVIDIA H100 NVL", "h100-sxm"),
        ("NVIDIA GeForce RTX 5090 Laptop GPU", "rtx-5090"),
        ("NVIDIA GeForce RTX 4090 D", "rtx-4090"),
        ("NVIDIA A100-SXM4-40GB", "a100-80gb-sxm"),
        ("RTX PRO 5000 72GB", "rtx-pro-5000"),
        ("RTX 6000 Ada Generation", "rtx-pro-6000-workstation"),
        ("rtx 5091", "rtx-5090"),
        ("server", "rtx-pro-6000-server"),
    ],
)
def test_another_product_is_not_mistaken_for_one_of_the_catalogue(name: str, near: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        resolve_gpu(name)
    assert near in caught.value.choices


def test_a_mig_slice_is_told_apart_from_its_gpu() -> None:
    with pytest.raises(UnknownNameError, match="MIG slice"):
        resolve_gpu("NVIDIA RTX PRO 6000 Blackwell Server Edition MIG 1g.24gb")


@given(st.text(max_size=300))
def test_any_text_gives_a_gpu_or_one_sentence(text: str) -> None:
    try:
        resolve_gpu(text)
    except InputError as error:
        assert error.msg.endswith(".")
        assert len(error.msg) < 1000
