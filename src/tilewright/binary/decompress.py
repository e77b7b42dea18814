"""Compressed images of a fatbinary: LZ4 blocks (all toolchains up to CUDA 12.3, `-compress-mode=speed` since) and zstd
frames (CUDA 12.4 and later). Output is bounded by what the entry's header declares."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from tilewright.binary.source import BinaryError

__all__ = ["has_fast_lz4", "lz4_block", "unpack_lz4", "zstd_frame", "zstd_module"]

_MIN_MATCH: Final = 4
"""Shortest match of LZ4 (block format specification)."""
_LONG: Final = 15
"""A nibble of this value says that more length bytes follow."""
_WINDOW: Final = 1 << 27
"""Largest zstd window that is allocated, in bytes: zstd's own default limit for decoders."""


def lz4_block(data: bytes, size: int) -> bytes:
    """Decompress one LZ4 block to exactly `size` bytes. Raises BinaryError where it does not give that."""
    out = bytearray()
    at, end = 0, len(data)
    try:
        while at < end:
            token = data[at]
            at += 1
            count = token >> 4
            if count == _LONG:
                more = 255
                while more == 255:
                    more = data[at]
                    at += 1
                    count += more
            if count:
                if at + count > end or len(out) + count > size:
                    break
                out += data[at : at + count]
                at += count
            if at >= end:  # the last sequence has literals only
                break
            back = data[at] | data[at + 1] << 8
            at += 2
            count = (token & 15) + _MIN_MATCH
            if token & 15 == _LONG:
                more = 255
                while more == 255:
                    more = data[at]
                    at += 1
                    count += more
            start = len(out) - back
            if back == 0 or start < 0 or len(out) + count > size:
                break
            if back >= count:
                out += out[start : start + count]
            else:  # the match overlaps what it writes: a repeated pattern
                pattern = bytes(out[start:])
                out += (pattern * (count // back + 1))[:count]
    except IndexError:
        pass
    if len(out) != size:
        raise BinaryError(f"An LZ4-compressed image gives {len(out):,} bytes instead of {size:,}: it is damaged.")
    return bytes(out)


def has_fast_lz4() -> bool:
    """Whether the `lz4` package of the extra `binary` is here: some hundred times faster than `lz4_block`."""
    return find_spec("lz4") is not None


def unpack_lz4(data: bytes, size: int) -> bytes:
    """As `lz4_block`, in C where it can be."""
    if not has_fast_lz4():
        return lz4_block(data, size)
    module: Any = import_module("lz4.block")
    try:
        out: bytes = module.decompress(data, uncompressed_size=size)
    except (module.LZ4BlockError, MemoryError, ValueError, OverflowError) as error:
        raise BinaryError(f"An LZ4-compressed image is damaged: {error}.") from None
    if len(out) != size:
        raise BinaryError(f"An LZ4-compressed image gives {len(out):,} bytes instead of {size:,}: it is damaged.")
    return out


def zstd_module() -> str | None:
    """The module that can read zstd here: Python 3.14's own, or that of the extra `binary`."""
    for name in ("compression.zstd", "zstandard"):
        try:
            if find_spec(name) is not None:
                return name
        except (ImportError, ValueError):
            continue
    return None


def zstd_frame(data: bytes, size: int) -> bytes | None:
    """Decompress zstd frames to exactly `size` bytes; None where no module can. Raises BinaryError on damaged data."""
    name = zstd_module()
    if name is None:
        return None
    module: Any = import_module(name)
    try:
        if name == "zstandard":
            reader = module.ZstdDecompressor(max_window_size=_WINDOW).stream_reader(data, read_across_frames=True)
            out: bytes = reader.read(size)
        else:
            options = {module.DecompressionParameter.window_log_max: _WINDOW.bit_length() - 1}
            out = module.ZstdDecompressor(options=options).decompress(data, size)
    except (module.ZstdError, MemoryError, EOFError) as error:
        raise BinaryError(f"A zstd-compressed image is damaged: {error}.") from None
    if len(out) != size:
        raise BinaryError(f"A zstd-compressed image gives {len(out):,} bytes instead of {size:,}: it is damaged.")
    return out
