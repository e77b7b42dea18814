"""A library on another host as a local archive: its sources come through ssh, nothing is installed or written there.

What comes back is never unpacked. It is a zip that is checked member by member against the digest that the far side
announced, kept in the cache under that digest, and read in place like a wheel: a name with `..`, a link or a bomb in it
can do nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import subprocess
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import IO, Final

import msgspec

from tilewright.errors import InputError, TilewrightError, ToolError, shown
from tilewright.observe.ssh import check_host, failure, ssh_command

LIMIT_S: Final = 600.0
"""How long finding, packing and sending may take: a FlashInfer has 60 MB of sources, 10 MB packed."""
MAX_ZIP: Final = 256 << 20
MAX_FILE: Final = 32 << 20
MAX_BYTES: Final = 512 << 20
MAX_FILES: Final = 60_000
"""The far side keeps to the same limits (`collector/sender.py`); these hold whatever it says."""
KEPT: Final = 16
"""Archives that are kept, the oldest go first."""
_MARK: Final = b"tilewright-tree/1 "
_MAX_HEAD: Final = 1 << 20
"""What a login script may print before the mark, and the longest header."""
_SHA256: Final = 64


class _Header(msgspec.Struct, frozen=True):
    """What the far side says before the zip."""

    error: str = ""
    looked: list[str] = []
    root: str = ""
    digest: str = ""
    sent: bool = False
    zip_bytes: int = 0
    skipped: list[str] = []


@dataclass(frozen=True)
class RemoteTree:
    """The archive here, and where it was read there."""

    archive: Path
    host: str
    root: str
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As scp would write it."""
        return f"{self.host}:{self.root}"


def _folder() -> Path:
    from tilewright.probe.cache import cache_root

    return cache_root() / "remote"


def _held() -> dict[str, Path]:
    """Digest -> archive of what is kept."""
    with contextlib.suppress(OSError, ToolError):
        return {path.stem: path for path in _folder().glob("*.zip") if len(path.stem) == _SHA256}
    return {}


def _header(stream: IO[bytes], host: str) -> _Header | None:
    """The header line, or None where the far side ended without one."""
    seen = 0
    while seen < _MAX_HEAD:
        line = stream.readline(_MAX_HEAD)
        if not line:
            return None
        seen += len(line)
        if line.startswith(_MARK):
            try:
                return msgspec.json.decode(line[len(_MARK) :], type=_Header)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                break
    raise ToolError(f"{host} answered what is no tree; run `ssh {host} python3 -V` to see what it prints.")


def _digest(archive: Path, host: str) -> str:
    """The digest of the members' names and contents. Raises ToolError for an archive that no sender makes."""
    digest, total = hashlib.sha256(), 0
    try:
        with zipfile.ZipFile(archive) as opened:
            members = opened.infolist()
            names = [item.filename for item in members]
            if len(names) > MAX_FILES or len(set(names)) != len(names):
                raise ToolError(f"{host} sent an archive with too many or repeated names; nothing of it was used.")
            for item in members:
                parts = item.filename.split("/")
                if item.filename.startswith("/") or ".." in parts or "\\" in item.filename or "\0" in item.filename:
                    raise ToolError(f"{host} sent {shown(item.filename)}, which is outside the tree; nothing was used.")
                with opened.open(item) as stream:
                    content = stream.read(MAX_FILE + 1)
                total += len(content)
                if len(content) > MAX_FILE or total > MAX_BYTES:
                    raise ToolError(f"{host} sent more than {MAX_BYTES >> 20} MiB of sources; nothing of it was used.")
                written = item.filename.encode("utf-8", "surrogateescape")
                digest.update(b"%d:%s%d:" % (len(written), written, len(content)))
                digest.update(hashlib.sha256(content).digest())
    except (OSError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
        raise ToolError(f"What {host} sent is damaged ({error}); try again.") from None
    return digest.hexdigest()


def _keep(part: Path, digest: str) -> Path:
    """The archive under its digest in the cache, or where it is when no cache can be written."""
    with contextlib.suppress(OSError, ToolError):
        folder = _folder()
        path = folder / f"{digest}.zip"
        part.replace(path)
        for old in sorted(folder.glob("*.zip"), key=lambda one: one.stat().st_mtime)[:-KEPT]:
            old.unlink()
        return path
    return part


def _part() -> Path:
    """An empty file for what arrives: in the cache, or in a temporary folder that ends with the process."""
    try:
        _folder().mkdir(parents=True, exist_ok=True)
        handle = tempfile.NamedTemporaryFile(dir=_folder(), suffix=".part", delete=False)  # noqa: SIM115
    except (OSError, ToolError):
        temporary = tempfile.TemporaryDirectory(prefix="tilewright-", ignore_cleanup_errors=True)
        atexit.register(temporary.cleanup)
        handle = tempfile.NamedTemporaryFile(dir=temporary.name, suffix=".zip", delete=False)  # noqa: SIM115
    handle.close()
    return Path(handle.name)


def _copied(stream: IO[bytes], part: Path, size: int, host: str) -> None:
    left = size
    with part.open("wb") as out:
        while left:
            chunk = stream.read(min(left, 1 << 20))
            if not chunk:
                raise ToolError(f"{host} stopped sending {left:,} bytes before the end; try again.")
            out.write(chunk)
            left -= len(chunk)


def fetch_tree(host: str, root: str | None, packages: Sequence[str]) -> RemoteTree:
    """The sources of `packages` on `host`, below `root` or where packages are installed there.

    Raises:
        InputError: the host does not answer, or there is no such tree on it (says where it looked).
        ToolError: ssh or the far python3 is missing, or what came back is no tree.
    """
    check_host(host)
    if root is not None and (not root or "\0" in root or not root.isprintable()):
        raise InputError("root", f"--root {shown(root)} is no path on {host}.")
    held = _held()
    request = json.dumps({"root": root, "packages": list(packages), "have": sorted(held)})
    source = resources.files("tilewright.observe.collector").joinpath("sender.py").read_bytes()
    try:
        process = subprocess.Popen(
            ssh_command(host, ["python3", "-", request]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except FileNotFoundError:
        raise ToolError("ssh is not installed here; run tilewright on the host itself, or copy the library.") from None
    late = threading.Timer(LIMIT_S, process.kill)
    said: list[bytes] = []
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    listener = threading.Thread(target=_listen, args=(process.stderr, said), daemon=True)
    part: Path | None = None
    try:
        late.start()
        listener.start()
        with contextlib.suppress(OSError):  # it ended before it read the script: its exit code says why
            process.stdin.write(source)
            process.stdin.close()
        header = _header(process.stdout, host)
        if header is None:
            raise _ended(process, listener, said, host)
        if header.error:
            raise _not_found(host, header)
        if not header.sent and header.digest in held:
            return RemoteTree(held[header.digest], host, header.root, tuple(header.skipped))
        if not 0 < header.zip_bytes <= MAX_ZIP:
            raise ToolError(f"{host} wants to send {header.zip_bytes:,} bytes; name a smaller --root.")
        part = _part()
        _copied(process.stdout, part, header.zip_bytes, host)
        if _digest(part, host) != header.digest:
            raise ToolError(f"What {host} sent is not what it announced; try again.")
        kept = _keep(part, header.digest)
        part = None
        return RemoteTree(kept, host, header.root, tuple(header.skipped))
    except OSError as error:
        raise ToolError(f"What {host} sends cannot be kept here: {error.strerror or error}.") from None
    finally:
        late.cancel()
        process.kill()
        process.wait()
        listener.join(1)
        for pipe in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(OSError):
                pipe.close()
        if part is not None:
            with contextlib.suppress(OSError):
                part.unlink()


def _listen(stream: IO[bytes], said: list[bytes]) -> None:
    """The end of what is said on stderr, without letting it fill up."""
    with contextlib.suppress(OSError, ValueError):
        while chunk := stream.read(4096):
            said[:] = [*said[-3:], chunk]


def _ended(
    process: subprocess.Popen[bytes], listener: threading.Thread, said: list[bytes], host: str
) -> TilewrightError:
    try:
        code = process.wait(5)
    except subprocess.TimeoutExpired:
        code = -1
    listener.join(1)
    if code < 0:
        return InputError("ssh", f"{host} took more than {LIMIT_S:.0f} s; name a smaller --root.")
    return failure(host, code, b"".join(said), "the search")


def _not_found(host: str, header: _Header) -> InputError:
    looked = ", ".join(shown(place) for place in header.looked[:12])
    more = f" and {len(header.looked) - 12} more" if len(header.looked) > 12 else ""
    where = f" (looked in {looked}{more})" if looked else ""
    return InputError("root", f"On {host} {header.error[:300]}{where}; name the place there with --root.")
