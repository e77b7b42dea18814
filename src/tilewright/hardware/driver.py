"""Reading device attributes from the CUDA driver library itself, through ctypes.

NVML does not report what kernels are limited by: shared memory, registers, threads, L2. `cuDeviceGetAttribute` does,
and needs neither a CUDA context nor device memory. The library is opened by name from the system's own search path.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["ATTRIBUTES", "device_attributes", "load_driver"]

# CUdevice_attribute values of cuda.h, by the figure they fill.
ATTRIBUTES: Final[Mapping[str, int]] = {
    "max_threads_per_block": 1,  # CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK
    "warp_size": 10,  # CU_DEVICE_ATTRIBUTE_WARP_SIZE
    "sm_count": 16,  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
    "l2_bytes": 38,  # CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE
    "max_threads_per_sm": 39,  # CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR
    "smem_per_sm_bytes": 81,  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
    "max_registers_per_sm": 82,  # CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR
    "smem_optin_max_per_block_bytes": 97,  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    "max_blocks_per_sm": 106,  # CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR
    "smem_reserved_per_block_bytes": 111,  # CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK
}
_CUDA_SUCCESS = 0


def load_driver() -> Any | None:
    """The CUDA driver library, initialised, or None where there is none or it refuses."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        library = ctypes.CDLL(name)
        return library if library.cuInit(0) == _CUDA_SUCCESS else None
    except (OSError, AttributeError):
        return None


def device_attributes(driver: Any, bus_id: str) -> dict[str, int]:
    """The attributes of the device at that PCI bus id; those that the driver does not know are left out.

    Empty when the driver does not see the device (CUDA_VISIBLE_DEVICES hides it, say).
    """
    device = ctypes.c_int()
    if driver.cuDeviceGetByPCIBusId(ctypes.byref(device), bus_id.encode()) != _CUDA_SUCCESS:
        return {}
    found: dict[str, int] = {}
    for figure, attribute in ATTRIBUTES.items():
        value = ctypes.c_int()
        if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device) == _CUDA_SUCCESS:
            found[figure] = value.value
    return found
