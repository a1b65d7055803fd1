"""Segments on disk: one file of arrays each, and one file per vector space beside it.

A segment's file is written aside, synced and renamed, so a name that exists is whole. A vector file
is written in place; what is not yet synced there still stands in the store and is written again.

Checksums: the head, the size and the columns of a segment are checked whenever it is opened, its postings
then only if they are small, else by `verify`; each row of a vector file has a checksum of its own.
"""

from __future__ import annotations

import json
import mmap
import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from holdfast.home import private_opener
from holdfast.memory.engine.postings import Postings
from holdfast.memory.engine.segment import (
    COLUMNS,
    MOVING,
    Plan,
    Segment,
    State,
    assemble,
    gather,
)
from holdfast.memory.engine.vectors import Quantised, empty, row_sums, words_for

_MAGIC = b"HOLDSEG2"
_BEFORE_CHECKSUMS = b"HOLDSEG1"
_SMALL_BYTES = 4 * 1024**2
_ALIGN = 64
_CHUNK = 8_192
_SUFFIXES = frozenset({".seg", ".vec", ".new"})


class DamagedSegment(Exception):
    """A segment's file is missing or not as it was written; its rows must be indexed again."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}")
        self.name = name
        self.why = why


class DamagedVectors(Exception):
    """A vector file is not whole; its rows must be embedded again."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path.name} is not whole")
        self.path = path


def write_segment(folder: Path, name: str, columns: dict[str, NDArray[Any]], postings: Postings) -> None:
    """Write, sync and rename; only then may the store name the segment."""
    arrays = dict(columns) | {
        "terms": postings.terms,
        "starts": postings.starts,
        "posting_rows": postings.rows,
        "posting_codes": postings.codes,
    }
    aside = folder / f"{name}.new"
    with open(aside, "wb", opener=private_opener) as out:
        _write_arrays(out, arrays)
        out.flush()
        os.fsync(out.fileno())
    aside.rename(folder / f"{name}.seg")
    sync_folder(folder)


def _write_arrays(out: BinaryIO, arrays: dict[str, NDArray[Any]]) -> None:
    described, offset = {}, 0
    for key, values in arrays.items():
        data = np.ascontiguousarray(values).data
        described[key] = [values.dtype.str, len(values), offset, zlib.crc32(data)]
        offset += -(-values.nbytes // _ALIGN) * _ALIGN
    header = json.dumps({"arrays": described, "bytes": offset}).encode()
    header += b" " * (-(len(_MAGIC) + 16 + len(header)) % _ALIGN)
    out.write(_MAGIC + len(header).to_bytes(8, "little") + zlib.crc32(header).to_bytes(8, "little") + header)
    for values in arrays.values():
        out.write(np.ascontiguousarray(values).data)
        out.write(b"\0" * (-values.nbytes % _ALIGN))


def read_segment(folder: Path, name: str) -> tuple[Segment, State]:
    """Map a segment's file; the columns are copied, the postings stay on disk until touched."""
    try:
        mapped = _Mapped(folder / f"{name}.seg")
        mapped.check(None if mapped.size <= _SMALL_BYTES else (*COLUMNS, *MOVING))
        arrays = mapped.arrays
        postings = Postings(
            arrays["terms"], arrays["starts"], arrays["posting_rows"], arrays["posting_codes"]
        )
        columns = {key: np.array(arrays[key]) for key in (*COLUMNS, *MOVING)}
        return assemble(name, columns, postings, {})
    except _UNREADABLE as error:
        raise DamagedSegment(name, str(error)) from error


def verify(folder: Path, name: str) -> None:
    """Read a whole segment and hold it against its checksums; `DamagedSegment` if it is not as written."""
    try:
        _Mapped(folder / f"{name}.seg").check(None)
    except _UNREADABLE as error:
        raise DamagedSegment(name, str(error)) from error


_UNREADABLE = (OSError, ValueError, TypeError, LookupError, AttributeError, OverflowError)


class _Mapped:
    """A segment's file in memory, by its arrays; whoever makes one knows that head and size are right."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as source:
            view = mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ)
        magic = view[: len(_MAGIC)]
        if magic not in (_MAGIC, _BEFORE_CHECKSUMS):
            raise ValueError("not a segment")
        start = len(_MAGIC) + (16 if magic == _MAGIC else 8)
        size = int.from_bytes(view[len(_MAGIC) : len(_MAGIC) + 8], "little")
        head = view[start : start + size]
        if magic == _MAGIC and zlib.crc32(head) != int.from_bytes(view[start - 8 : start], "little"):
            raise ValueError("its head is not as it was written")
        described = json.loads(head)
        if len(view) != start + size + described["bytes"]:
            raise ValueError("not whole")
        self.size = len(view)
        self.arrays: dict[str, NDArray[Any]] = {}
        self._sums: dict[str, int | None] = {}
        for key, (dtype, count, offset, *total) in described["arrays"].items():
            self.arrays[key] = np.frombuffer(view, dtype=dtype, count=count, offset=start + size + offset)
            self._sums[key] = total[0] if total else None

    def check(self, keys: Sequence[str] | None) -> None:
        """Hold some arrays, or all, against their checksums; a file from before there were any is trusted."""
        for key in self.arrays if keys is None else keys:
            kept = self._sums[key]
            if kept is not None and zlib.crc32(self.arrays[key].data) != kept:
                raise ValueError(f"{key} are not as they were written")


def vector_path(folder: Path, name: str, space: int, dims: int) -> Path:
    return folder / f"{name}.{space}.{dims}.vec"


def vectors_beside(folder: Path, name: str) -> list[tuple[Path, int, int]]:
    """Every vector file of a segment, with its space and width."""
    named = [(path, path.name.split(".")) for path in sorted(folder.glob(f"{name}.*.*.vec"))]
    return [(path, int(at[1]), int(at[2])) for path, at in named if at[1].isdigit() and at[2].isdigit()]


def open_vectors(folder: Path, name: str, space: int, rows: int, dims: int) -> Quantised:
    """Map a vector file for reading and writing in place, made empty if there is none."""
    path = vector_path(folder, name, space, dims)
    code_bytes, bit_bytes = -(-rows * dims // 8) * 8, words_for(dims) * rows * 8
    before_checksums = code_bytes + bit_bytes + rows * 4
    size = before_checksums + rows * 4
    with open(path, "r+b" if path.exists() else "w+b", opener=private_opener) as file:
        found = os.fstat(file.fileno()).st_size
        if found not in (0, before_checksums, size):
            raise DamagedVectors(path)
        file.truncate(size)
        view = mmap.mmap(file.fileno(), size)
    block = Quantised(
        np.frombuffer(view, np.int8, rows * dims).reshape(rows, dims),
        np.frombuffer(view, np.float32, rows, code_bytes + bit_bytes),
        np.frombuffer(view, np.uint64, words_for(dims) * rows, code_bytes).reshape(-1, rows),
        np.frombuffer(view, np.uint32, rows, before_checksums),
    )
    if found == before_checksums:
        block.sums[:] = row_sums(block.codes, block.scales)
    return block


def write_vectors(
    folder: Path,
    name: str,
    space: int,
    dims: int,
    blocks: Sequence[Quantised | None],
    plan: Plan,
    go_on: Callable[[], None],
) -> None:
    """Write the merged vectors of a space chunk by chunk and sync them."""
    rows = len(plan.row)
    bits, scales = np.zeros((words_for(dims), rows), np.uint64), np.zeros(rows, np.float32)
    sums = np.zeros(rows, np.uint32)
    with open(vector_path(folder, name, space, dims), "wb", opener=private_opener) as out:
        for low in range(0, rows, _CHUNK):
            go_on()
            high = min(rows, low + _CHUNK)
            chunk = empty(high - low, dims)
            gather(blocks, plan, low, high, chunk)
            out.write(chunk.codes.data)
            bits[:, low:high], scales[low:high], sums[low:high] = chunk.bits, chunk.scales, chunk.sums
        out.write(b"\0" * (-rows * dims % 8))
        out.write(bits.data)
        out.write(scales.data)
        out.write(sums.data)
        out.flush()
        os.fsync(out.fileno())


def sync_vectors(folder: Path, name: str) -> None:
    """Push rows written in place to the disk."""
    for path in folder.glob(f"{name}.*.*.vec"):
        with path.open("r+b") as file:
            os.fsync(file.fileno())
    sync_folder(folder)


def remove(folder: Path, keep: set[str]) -> None:
    """Drop the files of segments that the store does not name."""
    for path in folder.iterdir():
        if path.suffix in _SUFFIXES and path.name.split(".")[0] not in keep:
            path.unlink()


def of_segment(folder: Path, name: str) -> list[Path]:
    """All files of one segment."""
    return [path for path in sorted(folder.glob(f"{name}.*")) if path.suffix in _SUFFIXES]


def all_segments(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if path.suffix in _SUFFIXES]


def remove_segment(folder: Path, name: str) -> None:
    """Drop all files of one segment."""
    for path in folder.glob(f"{name}.*"):
        if path.suffix in _SUFFIXES and not path.is_dir():
            path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
