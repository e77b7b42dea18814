"""Where and with what is tuned: the GPU, its model, whose text of the kernel is built."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tilewright.bench.backends.base import version_of
from tilewright.errors import InputError, MissingPartError, TilewrightError
from tilewright.tune.moe_call import engine_kernel, own_kernel
from tilewright.tune.order import Machine, machine_of
from tilewright.tune.settings import Settings

if TYPE_CHECKING:
    from tilewright.bench.device import Device
    from tilewright.triton_.extract import Kernel


@dataclass(frozen=True)
class Ground:
    """`device` None: nothing is measured. `source` None: our CUDA kernel."""

    machine: Machine
    gpu: str
    device: Device | None
    source: Kernel | None
    source_label: str
    notes: tuple[str, ...]


def triton_version() -> str:
    """The version of Triton that is installed.

    Raises:
        MissingPartError: none is.
    """
    found = version_of("triton")
    if found is None:
        raise MissingPartError("Triton, which compiles the engines' kernels,", "tune")
    return found


def absent_compiler(kernel: str) -> str | None:
    """The package that compiles `kernel`, where it is not installed."""
    module, name = ("cuda", "cuda-bindings") if kernel == "ours" else ("triton", "Triton")
    return name if find_spec(module) is None else None


def source_of(settings: Settings) -> tuple[Kernel | None, str, list[str]]:
    """(the Triton kernel's text, whose it is, notes); None for our CUDA kernel."""
    if settings.kernel == "ours":
        return None, "tilewright's NVFP4 grouped GEMM (nvfp4_grouped.cu)", []
    engine = settings.kernel.split("-", 1)[0]
    if settings.root is not None or find_spec(engine) is not None:
        kernel = engine_kernel(settings.kernel, settings.layer, settings.root)
        return kernel, f"{engine}: {kernel.file}:{kernel.line}", []
    note = (
        f"{engine} is not installed here: tilewright's own kernel of the same parameters stands in for it. Tune with "
        "--root DIR_OR_WHEEL of the version that you serve with before relying on the last few percent."
    )
    return own_kernel(), "tilewright's own Triton kernel (not the engine's)", [note]


def ground_of(settings: Settings) -> Ground:
    """The GPU and the kernel of a run.

    Raises:
        InputError: there is no GPU to measure on, or `gpu` is another one; an engine or its kernel is not there.
    """
    from tilewright.bench.device import read_device
    from tilewright.hardware.names import resolve_gpu

    source, label, notes = source_of(settings)
    if settings.compile_only and settings.gpu is not None:
        entry = resolve_gpu(settings.gpu)
        return Ground(machine_of(entry), entry.key, None, source, label, tuple(notes))
    try:
        device = read_device(settings.devices[0] if settings.devices else 0)
    except (TilewrightError, MissingPartError) as error:
        if settings.ray is not None and not isinstance(error, MissingPartError):
            from tilewright.tune.ray_fleet import cluster_gpu

            return _on(settings, cluster_gpu(settings.ray), source, label, notes)  # this host only hands work out
        if settings.compile_only:
            raise InputError("gpu", "There is no GPU here to ask: name the one to compile for with --gpu.") from None
        if isinstance(error, MissingPartError):
            raise MissingPartError("PyTorch or nvidia-ml-py, which tuning measures with,", "tune") from None
        if isinstance(error, InputError):
            raise
        msg = (
            "No NVIDIA driver answers on this machine, and tuning measures on its GPU; --compile-only --gpu NAME "
            "prunes the space and compiles what is left without one."
        )
        raise TilewrightError(msg) from None
    return _on(settings, device, source, label, notes)


def _on(settings: Settings, device: Device, source: Kernel | None, label: str, notes: list[str]) -> Ground:
    """The ground of a run that measures on `device`."""
    from tilewright.hardware.names import resolve_gpu

    if settings.gpu is not None and resolve_gpu(settings.gpu).key != device.gpu:
        msg = f"--gpu {settings.gpu} is not the GPU here ({device.name}); --compile-only takes another one."
        raise InputError("gpu", msg)
    if device.entry is None:
        raise InputError("device", f"The catalogue does not know {device.name}, so that nothing can be pruned for it.")
    return Ground(machine_of(device.entry), device.gpu, device, source, label, tuple(notes))


def devices_of(settings: Settings, ground: Ground) -> list[Device]:
    """The GPUs of this machine that are measured on, as NVML tells them.

    Raises:
        InputError: one of `devices` is not there, or they are not all of one kind.
    """
    from tilewright.bench.device import read_device

    assert ground.device is not None
    count = ground.device.count
    for number in settings.devices:
        if not 0 <= number < count:
            raise InputError("devices", f"--devices {number} is not there; this machine's are 0 to {count - 1}.")
    found = [read_device(number) for number in settings.devices or range(count)]
    for device in found:
        if device.name != ground.device.name:
            msg = (
                f"GPU {device.index} is a {device.name} and GPU {ground.device.index} a {ground.device.name}: what is "
                "fastest on one is not on the other; tune each kind by itself with --devices."
            )
            raise InputError("devices", msg)
    return found
