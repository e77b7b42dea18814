"""Device names in tuned files, and the GPUs behind them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, cast

from tilewright.data.figures import read_packaged
from tilewright.errors import UnknownNameError
from tilewright.libraries.tuned.world import Device

_VENDOR: Final = "NVIDIA"


@lru_cache(maxsize=1)
def _document() -> dict[str, Any]:
    return read_packaged("triton_devices.json")


@lru_cache(maxsize=16)
def _limit(capability: str) -> int | None:
    """Opt-in limit in bytes of an architecture, which every GPU of it shares."""
    from tilewright.hardware.catalogue import catalogue

    found = next((gpu for gpu in catalogue() if gpu.compute_capability == capability), None)
    if found is not None:
        return found.smem_optin_bytes
    # 8.6 has 8.9's limit (CUDA C++ Programming Guide, technical specifications: 99 KB a block).
    return _limit("8.9") if capability == "8.6" else None


@lru_cache(maxsize=512)
def device_of_file(name: str) -> Device | None:
    """The GPU that a file's `device_name` means; None for another vendor's, or one that is not known."""
    table = cast("dict[str, list[Any]]", _document()["capability"])
    best = max((key for key in table if name == key or name.startswith((key + "_", key + "-"))), key=len, default=None)
    if best is None:
        return None
    capability = str(table[best][0])
    major, minor = (int(part) for part in capability.split("."))
    return Device(name.replace("_", " "), (major, minor), _limit(capability))


def device_of_gpu(text: str) -> Device:
    """The GPU that a user names: a key or product name of the catalogue, or what torch calls it ("NVIDIA ...").

    Raises:
        InputError: it is not known.
    """
    from tilewright.hardware.names import resolve_gpu

    if text.strip().upper().startswith(_VENDOR):
        found = device_of_file("_".join(text.split()))
        if found is not None:
            return Device(" ".join(text.replace("_", " ").split()), found.capability, found.smem_optin)
    gpu = resolve_gpu(text)
    names = cast("dict[str, list[Any]]", _document()["torch_names"])
    if gpu.key not in names:
        raise UnknownNameError("gpu", text, list(names), "Give the name that torch reports, such as 'NVIDIA H200'.")
    major, minor = (int(part) for part in gpu.compute_capability.split("."))
    return Device(str(names[gpu.key][0]), (major, minor), gpu.smem_optin_bytes)
