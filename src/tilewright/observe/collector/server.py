"""The server that runs on the host: engine, flags, versions, where its headers and caches are. Read from /proc.

What may hold a secret does not leave: values of flags that name keys, tokens or passwords, text that looks like one,
and every environment variable but a short list of switches whose value is a number or a word.
"""

from __future__ import annotations

import os
import re
from typing import Any

from tilewright.observe.collector.tools import Notes, listing, read_bytes, read_text
from tilewright.withheld import holds_secret, safe_value

PROGRAMS = {"vllm": "vllm", "sglang": "sglang", "trtllm-serve": "trtllm"}
"""Console scripts that start a server."""
MODULES = (("sglang.launch_server", "sglang"), ("vllm.entrypoints", "vllm"), ("tensorrt_llm.commands.serve", "trtllm"))
"""What `python -m` is given to start one."""
MAX_FLAGS = 400
MAX_VALUE = 300
SWITCHES = frozenset(
    {
        "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING",
        "FLASHINFER_CUDA_ARCH_LIST", "FLASHINFER_DISABLE_VERSION_CHECK", "NCCL_ALGO", "NCCL_BUFFSIZE",
        "NCCL_CUMEM_ENABLE", "NCCL_DEBUG", "NCCL_IB_DISABLE", "NCCL_MAX_NCHANNELS", "NCCL_MIN_NCHANNELS",
        "NCCL_NVLS_ENABLE", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_PROTO", "NCCL_SHM_DISABLE", "OMP_NUM_THREADS",
        "PYTORCH_CUDA_ALLOC_CONF", "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE", "SGLANG_PCIE_IPC_MAX_NUMEL",
        "SGLANG_ENABLE_JIT_DEEPGEMM", "TORCH_CUDA_ARCH_LIST", "TORCH_NCCL_AVOID_RECORD_STREAMS",
        "VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC", "VLLM_ATTENTION_BACKEND", "VLLM_DISABLED_KERNELS",
        "VLLM_ENABLE_PCIE_ALLREDUCE", "VLLM_USE_FLASHINFER_MOE_FP4", "VLLM_WORKER_MULTIPROC_METHOD",
    }
)  # fmt: skip
"""Environment variables that change speed; their values are numbers, switches or names of backends."""
_PLAIN_VALUE = re.compile(r"[A-Za-z0-9_.,:;+-]{0,64}\Z")
DISTRIBUTIONS = re.compile(
    r"(sglang|vllm|flashinfer_python|flashinfer_cubin|flashinfer_jit_cache|sgl_kernel|torch|triton|tensorrt_llm"
    r"|nvidia_nccl_cu\d+|nvidia_cutlass_dsl|deep_gemm|humming_kernels|xgrammar|transformers)-([^-]+)\.dist-info\Z",
    re.I,
)
_SITE = re.compile(r"(/\S*?/(?:site|dist)-packages)/")


def command_line(pid: int) -> list[str]:
    """The arguments of a process; empty where it is gone."""
    raw = read_bytes("/proc/" + str(pid) + "/cmdline") or b""
    return [part.decode("utf-8", "replace") for part in raw.split(b"\0") if part]


def engine_of(words: list[str]) -> str | None:
    """Which engine a command line starts."""
    for word in words[:2]:  # a console script is the program itself, or the first argument of its interpreter
        name = PROGRAMS.get(os.path.basename(word))
        if name:
            return name
    if not words or not os.path.basename(words[0]).startswith("python"):
        return None
    for place, word in enumerate(words[1:6], 1):
        if word == "-m" and place + 1 < len(words):
            return next((name for module, name in MODULES if words[place + 1].startswith(module)), None)
        if word.endswith("sglang/launch_server.py"):
            return "sglang"
    return None


def find_server() -> tuple[int | None, int]:
    """(pid of the server that was started first, how many there are); workers carry their parent's name."""
    found = [int(name) for name in listing("/proc") if name.isdigit() and engine_of(command_line(int(name)))]
    here = set(found)
    parents = [pid for pid in found if parent_of(pid) not in here]
    return (min(parents) if parents else None), len(parents)


def parent_of(pid: int) -> int | None:
    match = re.search(r"^PPid:\s+(\d+)$", read_text("/proc/" + str(pid) + "/status") or "", re.M)
    return int(match.group(1)) if match else None


def typed(value: str) -> str | int | float:
    """A flag's value as a number where it is one."""
    if re.match(r"-?\d{1,15}\Z", value):
        return int(value)
    if re.match(r"-?\d{1,15}\.\d{1,15}\Z", value):
        return float(value)
    return value


def flags_of(words: list[str]) -> dict[str, str | int | float | bool]:
    """`--name value`, `--name=value` and bare switches of a command line, names without dashes."""
    flags: dict[str, str | int | float | bool] = {}
    place = 0
    while place < len(words) and len(flags) < MAX_FLAGS:
        word = words[place]
        place += 1
        match = re.match(r"--?([A-Za-z][\w.-]*)(?:=(.*))?\Z", word, re.S)
        if not match or (not word.startswith("--") and len(match.group(1)) > 3):
            continue
        name, value = match.group(1), match.group(2)
        if name in ("c", "m"):  # the interpreter's own
            place += 1
            continue
        values: list[str] = [] if value is None else [value]
        while value is None and place < len(words) and not re.match(r"--?[A-Za-z]", words[place]):
            values.append(words[place])
            place += 1
        flags[name] = typed(safe_value(name, " ".join(values))[:MAX_VALUE]) if values else True
    return flags


def switches(pid: int) -> dict[str, str]:
    """Environment variables of the list above, where their value is a plain word."""
    raw = read_bytes("/proc/" + str(pid) + "/environ") or b""
    found: dict[str, str] = {}
    for pair in raw.split(b"\0"):
        name, _, value = pair.decode("utf-8", "replace").partition("=")
        if name in SWITCHES and _PLAIN_VALUE.match(value) and not holds_secret(value):
            found[name] = value
    return found


def site_folders(pid: int | None) -> list[str]:
    """Folders of installed packages that the process has loaded code from, or the usual ones of this machine."""
    if pid is not None:
        found = sorted(set(_SITE.findall(read_text("/proc/" + str(pid) + "/maps", 8 << 20) or "")))
        if found:
            root = "/proc/" + str(pid) + "/root"  # the process may live in a container
            return [root + path if os.path.isdir(root + path) else path for path in found]
    usual: list[str] = []
    for base in ("/usr/local/lib", "/usr/lib", "/opt/venv/lib", "/opt/conda/lib"):
        usual += [os.path.join(base, name, kind) for name in listing(base) if name.startswith("python3")
                  for kind in ("site-packages", "dist-packages")]  # fmt: skip
    return [path for path in usual if os.path.isdir(path)]


def installed(folders: list[str]) -> dict[str, str]:
    """Distribution -> version of what matters here."""
    found: dict[str, str] = {}
    for folder in folders:
        for name in listing(folder):
            match = DISTRIBUTIONS.match(name)
            if match:
                found.setdefault(match.group(1).lower().replace("_", "-"), match.group(2)[:100])
    return found


def shown_path(path: str) -> str:
    """A path without the container's prefix and without the name of a user."""
    path = re.sub(r"^/proc/\d+/root", "", path)
    return re.sub(r"^/(?:home|Users)/[^/]+", "~", path)


def trees_of(folders: list[str], pid: int | None) -> dict[str, str]:
    """Where CUTLASS headers and compiled kernels are: what `collectives`, `tactics` and `inspect` can be pointed at."""
    found: dict[str, str] = {}
    for folder in folders:
        for label, below in (
            ("flashinfer", "flashinfer"),
            ("flashinfer cutlass", "flashinfer/data/cutlass/include/cutlass"),
            ("vllm", "vllm"),
            ("sglang", "sglang"),
            ("sgl-kernel", "sgl_kernel"),
            ("deep-gemm", "deep_gemm"),
            ("nvidia-cutlass", "cutlass_library/source/include/cutlass"),
        ):
            path = os.path.join(folder, below)
            if label not in found and os.path.isdir(path):
                found[label] = shown_path(path)
    root = "/proc/" + str(pid) + "/root" if pid is not None else ""
    homes = [root + "/root"] + [root + "/home/" + name for name in listing(root + "/home")]
    for home in homes:
        for label, below in (
            ("flashinfer JIT cache", ".cache/flashinfer"),
            ("vllm cache", ".cache/vllm"),
            ("triton cache", ".triton/cache"),
            ("sglang cache", ".cache/sglang"),
        ):
            path = os.path.join(home, below)
            if label not in found and os.path.isdir(path):
                found[label] = shown_path(path)
    return found


def server_section(pid: int | None, notes: Notes) -> dict[str, Any]:
    """`engine`, `libraries` and `trees`."""
    if pid is None:
        pid, count = find_server()
        if count > 1:
            notes.add(str(count) + " servers run here; this is the one with the lowest pid (name another with --pid)")
    elif not command_line(pid):
        notes.add("process " + str(pid) + " does not exist or may not be read")
        pid = None
    folders = site_folders(pid)
    libraries = installed(folders)
    section: dict[str, Any] = {"libraries": libraries, "trees": trees_of(folders, pid)}
    if pid is None:
        notes.add("no SGLang, vLLM or TensorRT-LLM server was found among the processes")
        return section
    words = command_line(pid)
    name = engine_of(words)
    if name is None:
        notes.add("process " + str(pid) + " is no SGLang, vLLM or TensorRT-LLM server")
        return section
    version = libraries.get({"trtllm": "tensorrt-llm"}.get(name, name))
    engine: dict[str, object] = {"name": name, "flags": flags_of(words[1:]), "env": switches(pid)}
    if version:
        engine["version"] = version
    section["engine"] = engine
    return section
