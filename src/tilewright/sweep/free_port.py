"""Ports of this host: a free one, whether one is taken, and who listens on it."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Final

__all__ = ["free_port", "listeners", "port_free"]

_LISTEN: Final = "0A"
"""State of a listening socket in /proc/net/tcp (include/net/tcp_states.h: TCP_LISTEN = 10)."""


def port_free(host: str, port: int) -> bool:
    """Whether a server could listen there now (a socket in TIME_WAIT does not keep one from it)."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port(host: str) -> int:
    """A port that nobody uses at this moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _sockets(port: int) -> set[str]:
    """Inodes of the sockets that listen on `port`."""
    found: set[str] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if len(fields) > 9 and fields[3] == _LISTEN and fields[1].endswith(f":{port:04X}"):
                    found.add(fields[9])
    return found


def listeners(port: int, among: Iterable[int]) -> bool | None:
    """Whether one of the processes `among` listens on `port`; None where the system does not tell."""
    wanted = {f"socket:[{inode}]" for inode in _sockets(port)}
    if not wanted:
        return None
    readable = False
    for process in among:
        folder = f"/proc/{process}/fd"
        try:
            names = os.listdir(folder)  # noqa: PTH208 - a server holds thousands
        except OSError:
            continue
        readable = True
        for name in names:
            with contextlib.suppress(OSError):
                if os.readlink(f"{folder}/{name}") in wanted:  # noqa: PTH115
                    return True
    return False if readable else None
