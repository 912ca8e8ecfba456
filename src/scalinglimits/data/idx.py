"""IDX files, the format of MNIST and Fashion-MNIST, plain or gzipped.

A file opens with two zero bytes, a type byte, the number of dimensions, and each dimension as a
big-endian 32-bit integer; the values follow in row-major order.
"""

from __future__ import annotations

__all__ = ["load_idx"]

import gzip
import math
import os
import zlib
from pathlib import Path

import numpy as np

_TYPES: dict[int, np.dtype] = {
    0x08: np.dtype(">u1"),
    0x09: np.dtype(">i1"),
    0x0B: np.dtype(">i2"),
    0x0C: np.dtype(">i4"),
    0x0D: np.dtype(">f4"),
    0x0E: np.dtype(">f8"),
}
_GZIP_MAGIC = b"\x1f\x8b"


def load_idx(path: str | os.PathLike[str]) -> np.ndarray:
    """Read an IDX file.

    Args:
        path: the file, gzipped or not (its content decides, not its name).

    Returns:
        The array, in the machine's byte order.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not an IDX file, or its length does not fit its header.
    """
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"`path` must be an existing file; got {str(path)!r}")
    content = file.read_bytes()
    if content[:2] == _GZIP_MAGIC:
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{file} must be a whole gzip file; got {error}") from None
    dtype = _TYPES.get(content[2]) if len(content) >= 4 and content[:2] == b"\0\0" else None
    if dtype is None:
        raise ValueError(f"{file} must be an IDX file; got a header of {content[:4]!r}")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise ValueError(f"{file} must hold a header of {start} bytes; got {len(content)}")
    shape = tuple(int(size) for size in np.frombuffer(content[4:start], dtype=">u4"))
    expected = start + math.prod(shape) * dtype.itemsize
    if len(content) != expected:
        raise ValueError(
            f"{file} must hold {expected} bytes for the shape {shape} of its header; "
            f"got {len(content)}"
        )
    values = np.frombuffer(content, dtype=dtype, offset=start).reshape(shape)
    return values.astype(dtype.newbyteorder("="))
