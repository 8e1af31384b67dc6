"""Names as people write them lead to one accelerator, to a question back, or to the closest ones."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubaudit.errors import UsageError
from hubaudit.fit.catalogue import Gpu, apple_usable, catalogue, hardware_named, hardware_of_size, search
from hubaudit.types import Hardware

ONE = {
    "gtx960": "GeForce GTX 960",
    "GTX 960": "GeForce GTX 960",
    "rtx3070": "GeForce RTX 3070",
    "RTX 3070 8GB": "GeForce RTX 3070",
    "rtx4090": "GeForce RTX 4090",
    "RTX-4090": "GeForce RTX 4090",
    "4090": "GeForce RTX 4090",
    "4090 24gb": "GeForce RTX 4090",
    "4090 48GB": "GeForce RTX 4090 48GB",
    "4070tisuper": "GeForce RTX 4070 Ti SUPER",
    "4060 Ti 16GB": "GeForce RTX 4060 Ti 16GB",
    "3080": "GeForce RTX 3080",
    "3080 12G": "GeForce RTX 3080 12GB",
    "a6000": "RTX A6000",
    "6000 ada": "RTX 6000 Ada",
    "pro 6000": "RTX PRO 6000 Blackwell",
    "t4": "Tesla T4",
    "a10": "A10",
    "A10G": "A10G",
    "NVIDIA A10G": "A10G",
    "a100-80gb": "A100 80GB",
    "A100 40": "A100 40GB",
    "h100": "H100 80GB",
    "h100 nvl": "H100 NVL 94GB",
    "v100-32g": "Tesla V100 32GB",
    "dgx spark": "GB10",
    "mi300x": "Instinct MI300X",
    "7900xtx": "Radeon RX 7900 XTX",
    "7900 XT": "Radeon RX 7900 XT",
    "arc a770 16gb": "Arc A770 16GB",
    "M4 Max 128GB": "M4 Max 128GB",
    "apple m2 8gb": "M2 8GB",
    # as drivers say them (nvidia-smi, torch.cuda.get_device_name)
    "NVIDIA GeForce RTX 4090": "GeForce RTX 4090",
    "NVIDIA GeForce RTX 4090 Laptop GPU": "GeForce RTX 4090 Laptop",
    "NVIDIA A100-SXM4-80GB": "A100 80GB",
    "NVIDIA A100 80GB PCIe": "A100 80GB",
    "NVIDIA A100-PCIE-40GB": "A100 40GB",
    "NVIDIA H100 80GB HBM3": "H100 80GB",
    "NVIDIA H100 PCIe": "H100 80GB",
    "NVIDIA B300 SXM6 AC": "B300",
    "NVIDIA GH200 480GB": "GH200 96GB",
    "NVIDIA RTX 6000 Ada Generation": "RTX 6000 Ada",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "RTX PRO 6000 Blackwell",
    "Tesla V100-SXM2-16GB": "Tesla V100 16GB",
    "Tesla P100-PCIE-16GB": "Tesla P100 16GB",
    "AMD Radeon RX 7900 XTX": "Radeon RX 7900 XTX",
    "Intel(R) Arc(TM) B580 Graphics": "Arc B580",
    "Intel(R) Data Center GPU Max 1100": "Data Center GPU Max 1100",
}


@pytest.mark.parametrize("text", ONE)
def test_common_spellings_mean_one_card(text: str) -> None:
    """Short, long, with and without the size, and as drivers print them."""
    assert hardware_named(text).name == ONE[text]
    assert hardware_named(text).count == 1


@given(gpu=st.sampled_from(catalogue()), data=st.data())
def test_a_rows_name_is_found_however_it_is_set(gpu: Gpu, data: st.DataObject) -> None:
    """Upper or lower case, blanks, hyphens and underscores: the same card."""
    separator = data.draw(st.sampled_from([" ", "-", "_", "  "]))
    text = data.draw(st.sampled_from([str.upper, str.lower, str.title]))(gpu.name.replace(" ", separator))
    expected = Hardware(name=gpu.name, usable_bytes=gpu.usable_bytes, usable_source=gpu.usable_source)
    assert hardware_named(text) == expected


@given(
    gpu=st.sampled_from(catalogue()),
    count=st.integers(1, 999),
    form=st.sampled_from(["{0}x{1}", "{0} x {1}", "{1}x {0}", "{1} × {0}"]),
)
def test_a_count_may_stand_on_either_side(gpu: Gpu, count: int, form: str) -> None:
    """`4090x2` and `2x 4090` are two of them."""
    hardware = hardware_named(form.format(gpu.name, count))
    assert (hardware.name, hardware.count) == (gpu.name, count)


@given(st.text(max_size=30))
def test_any_text_is_answered(text: str) -> None:
    """A card, or a usage error: nothing else escapes."""
    with suppress(UsageError):
        assert hardware_named(text).usable_bytes > 0


@pytest.mark.parametrize(
    ("text", "choices"),
    [
        ("a100", ["A100 40GB", "A100 80GB"]),
        ("NVIDIA A100", ["A100 40GB", "A100 80GB"]),
        ("4060ti", ["GeForce RTX 4060 Ti 8GB", "GeForce RTX 4060 Ti 16GB"]),
        ("a100x4", ["A100 40GB", "A100 80GB"]),
        ("M4 Max", ["M4 Max 36GB", "M4 Max 48GB", "M4 Max 64GB", "M4 Max 128GB"]),
    ],
)
def test_a_name_with_several_sizes_asks_back(text: str, choices: list[str]) -> None:
    """No size is guessed."""
    with pytest.raises(UsageError, match="several sizes") as refused:
        hardware_named(text)
    assert refused.value.hint == f"one of {', '.join(choices)}"


@pytest.mark.parametrize(
    ("text", "close"), [("rtx 4091", "GeForce RTX 4090"), ("h1000", "H100 80GB"), ("7900 xtxx", "Radeon RX 7900 XTX")]
)
def test_an_unknown_name_hints_at_the_closest(text: str, close: str) -> None:
    """And says how to see all, and how to do without a name."""
    with pytest.raises(UsageError, match="no accelerator named") as refused:
        hardware_named(text)
    assert close in refused.value.hint
    assert "hubaudit gpus" in refused.value.hint
    assert "--memory" in refused.value.hint


@pytest.mark.parametrize("text", ["", " ", "x2", "4090x0", "0x4090", "nvidia", "gpu", "!!"])
def test_what_names_nothing_is_refused(text: str) -> None:
    """Also a count of nothing, and a vendor alone."""
    with pytest.raises(UsageError):
        hardware_named(text)


@pytest.mark.parametrize(("text", "size"), [("24GiB", 24 * 2**30), ("24GB", 24 * 10**9), ("8589934592", 2**33)])
def test_a_size_is_a_device(text: str, size: int) -> None:
    """Binary and decimal units mean what they say."""
    assert hardware_of_size(text) == Hardware(name=text, usable_bytes=size)


@pytest.mark.parametrize("text", ["", "much", "-1GiB", "0", "24 parsecs"])
def test_no_size_is_a_usage_error(text: str) -> None:
    """Never a traceback."""
    with pytest.raises(UsageError, match="not a size"):
        hardware_of_size(text)


@pytest.mark.parametrize("text", ["8", "24", "900KiB"])
def test_a_forgotten_unit_is_a_usage_error(text: str) -> None:
    """No device has eight bytes; who says so means something else."""
    with pytest.raises(UsageError, match="no device has") as refused:
        hardware_of_size(text)
    assert "24GiB" in str(refused.value.hint)


def test_search_finds_by_every_word() -> None:
    """Vendor and name, in any order; nothing asked is everything."""
    assert search("") == catalogue()
    assert {gpu.name for gpu in search("apple m4 128")} == {"M4 Max 128GB"}
    assert {gpu.vendor for gpu in search("amd")} == {"AMD"}
    assert {gpu.name for gpu in search("rtx4090 laptop")} == {"GeForce RTX 4090 Laptop"}
    assert search("zx81") == ()


def test_a_macs_share_is_that_of_its_size() -> None:
    """As the catalogue's Macs of that size; two thirds of a size that no row has."""
    assert apple_usable(96 * 2**30) == (72 * 2**30, "process")
    assert apple_usable(192 * 2**30) == (144 * 2**30, "rule")
    assert apple_usable(12 * 2**30) == (8 * 2**30, "rule")
