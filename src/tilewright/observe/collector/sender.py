"""Runs on another host: finds a library there and sends its sources, read-only, as one zip on standard output.

Standard library only, Python 3.8 or later; it is sent as text to `ssh HOST python3 -` and imports nothing of ours. It
leaves nothing on that host: the zip is made in a temporary file that has no name and ends with it.
Output: one line `tilewright-tree/1 {json}`, then, where `sent` is true, as many bytes of zip as `zip_bytes` says.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import stat
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator

MARK = b"tilewright-tree/1 "
SUFFIXES = (".h", ".hpp", ".inl", ".cuh", ".cu", ".cpp", ".cc", ".py", ".json", ".jinja")
PACKAGES = (
    "flashinfer", "vllm", "sglang", "sgl_kernel", "tensorrt_llm", "deep_gemm", "cutlass_library", "transformer_engine",
)  # fmt: skip
PRUNED = {"__pycache__", ".git", "node_modules", "proc", "sys", "dev"}
MAX_FILE = 32 << 20
MAX_FILES = 60000
MAX_BYTES = 512 << 20
MAX_FOLDERS = 50000
ENGINES = (b"sglang", b"vllm", b"trtllm", b"tensorrt_llm")


def places(home: str) -> list[str]:
    """Folders where packages are installed, likeliest first: of running servers, environments, this Python."""
    out = [os.environ.get(name) for name in ("CUTLASS_PATH", "CUTLASS_HOME", "CUTLASS_DIR")]
    prefixes: list[str | None] = []
    for path in sorted(glob.glob("/proc/[0-9]*/cmdline")):
        try:
            with open(path, "rb") as stream:
                words = stream.read(65536)
            if any(engine in words for engine in ENGINES):
                program = words.split(b"\0")[0].decode("utf-8", "surrogateescape")
                prefixes.append(os.path.dirname(os.path.dirname(program)))
        except (OSError, ValueError):
            continue
    prefixes += [os.environ.get("VIRTUAL_ENV"), os.environ.get("CONDA_PREFIX"), "/opt/venv", "/opt/conda"]
    prefixes += [os.path.join(home, name) for name in (".venv", "venv", "miniconda3", "miniforge3", "anaconda3")]
    for prefix in prefixes:
        if prefix and os.path.isabs(prefix):
            out += sorted(glob.glob(glob.escape(prefix) + "/lib/python3*/site-packages"))
    out += [entry for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))]
    out += sorted(glob.glob("/usr/local/lib/python3*/dist-packages"))
    return list(dict.fromkeys(entry for entry in out if entry))


def has_any(root: str, packages: Iterable[str]) -> list[str]:
    return [name for name in packages if os.path.isdir(os.path.join(root, name))]


def infos(root: str, packages: Iterable[str]) -> list[str]:
    """METADATA files of the known distributions in a site-packages."""
    out: list[str] = []
    for name in sorted(os.listdir(root)):
        stem = name.split("-", 1)[0].lower().replace("_python", "").replace("nvidia_cutlass", "cutlass_library")
        if name.endswith(".dist-info") and stem in packages:
            out.append(name + "/METADATA")
    return [path for path in out if os.path.isfile(os.path.join(root, path))]


def walk(root: str, tops: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(path below root, real path) of the sources below the folders `tops`; each real folder once, links followed."""
    seen: set[tuple[int, int]] = set()
    pending = list(tops)
    while pending:
        here = pending.pop()
        full = os.path.join(root, here) if here else root
        try:
            info = os.stat(full)
            if (info.st_dev, info.st_ino) in seen:
                continue
            seen.add((info.st_dev, info.st_ino))
            if len(seen) > MAX_FOLDERS:
                raise SystemExit(refuse(f"more than {MAX_FOLDERS} folders lie below {root}; name a smaller --root"))
            names = sorted(os.listdir(full))
        except OSError:
            continue
        for name in names:
            path = here + "/" + name if here else name
            target = os.path.join(root, path)
            try:
                mode = os.stat(target).st_mode
            except OSError:
                continue
            if stat.S_ISDIR(mode):
                if name not in PRUNED:
                    pending.append(path)
            elif stat.S_ISREG(mode) and name.endswith(SUFFIXES):
                yield path, target


class Folder:
    """What is sent of a folder."""

    def __init__(self, root: str, packages: Iterable[str]) -> None:
        self.root = root
        parent, name = os.path.split(root)
        if name in PACKAGES and os.path.isfile(os.path.join(root, "__init__.py")):
            self.root, tops = parent, [name]
        else:
            tops = has_any(root, packages)
        if tops:
            extra: list[tuple[str, str]] = [(path, os.path.join(self.root, path)) for path in infos(self.root, tops)]
        else:
            tops, extra = [""], []
        if os.path.isfile(os.path.join(self.root, "version.txt")):
            extra.append(("version.txt", os.path.join(self.root, "version.txt")))
        self.paths = dict(extra + list(walk(self.root, tops)))

    def names(self) -> list[str]:
        return sorted(self.paths)

    def read(self, name: str) -> bytes:
        # O_NONBLOCK: a FIFO that took the file's place must not hang.
        handle = os.open(self.paths[name], os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise OSError("no regular file")
            return stream.read(MAX_FILE + 1)


class Wheel:
    """What is sent of a wheel or zip."""

    def __init__(self, path: str) -> None:
        self.archive = zipfile.ZipFile(path)
        keep = (*SUFFIXES, ".dist-info/METADATA", "version.txt")
        self.members = {
            item.filename: item
            for item in self.archive.infolist()
            if item.filename.endswith(keep) and item.file_size <= MAX_FILE
        }

    def names(self) -> list[str]:
        return sorted(self.members)

    def read(self, name: str) -> bytes:
        with self.archive.open(self.members[name]) as stream:
            return stream.read(MAX_FILE + 1)


def answer(header: dict[str, object]) -> None:
    sys.stdout.buffer.write(MARK + json.dumps(header).encode("ascii") + b"\n")
    sys.stdout.buffer.flush()


def refuse(why: str, looked: Iterable[str] = ()) -> int:
    answer({"error": why, "looked": list(looked)})
    return 0


def find(root: str | None, packages: Iterable[str]) -> tuple[str | None, str, list[str]]:
    """(root, why not, where was looked)."""
    home = os.path.expanduser("~")
    if root:
        root = os.path.abspath(os.path.expanduser(root))
        return (root, "", [root]) if os.path.exists(root) else (None, "there is nothing at " + root, [root])
    looked = places(home)
    for place in looked:
        if has_any(place, packages) or os.path.isfile(os.path.join(place, "include/cutlass/version.h")):
            return place, "", looked
    return None, "none of " + ", ".join(packages) + " was found", looked


def send(root: str | None, packages: list[str], have: set[str]) -> int:
    root, why, looked = find(root, packages)
    if root is None:
        return refuse(why, looked)
    try:
        source = Folder(root, packages) if os.path.isdir(root) else Wheel(root)
    except (OSError, zipfile.BadZipFile, ValueError) as error:
        return refuse(f"{root} cannot be read: {error}", [root])
    names = source.names()
    if not names:
        return refuse("there are no sources below " + root, [root])
    if len(names) > MAX_FILES:
        return refuse(f"{len(names)} source files lie below {root}; name a smaller --root", [root])
    digest, total = hashlib.sha256(), 0
    skipped: list[str] = []
    with tempfile.TemporaryFile() as held:
        with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED, compresslevel=3) as packed:
            for name in names:
                try:
                    content = source.read(name)
                    written = name.encode("utf-8")
                except (OSError, ValueError, zipfile.BadZipFile, RuntimeError) as error:
                    skipped.append(f"{name!r}: {error}")
                    continue
                if len(content) > MAX_FILE:
                    skipped.append(f"{name!r}: too large for source text")
                    continue
                total += len(content)
                if total > MAX_BYTES:
                    why = f"the sources below {root} are larger than {MAX_BYTES >> 20} MiB; name a smaller --root"
                    return refuse(why, [root])
                digest.update(b"%d:%s%d:" % (len(written), written, len(content)))
                digest.update(hashlib.sha256(content).digest())
                packed.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
        held.seek(0, os.SEEK_END)
        size = held.tell()
        known = digest.hexdigest() in have
        answer({
            "root": root, "digest": digest.hexdigest(), "files": len(names), "bytes": total, "sent": not known,
            "zip_bytes": 0 if known else size, "skipped": skipped[:20],
        })  # fmt: skip
        held.seek(0)
        while not known:
            chunk = held.read(1 << 20)
            if not chunk:
                break
            sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    request = json.loads(sys.argv[1])
    sys.exit(send(request["root"], request["packages"], set(request["have"])))
