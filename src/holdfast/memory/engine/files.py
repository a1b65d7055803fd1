"""Segments on disk: one file of arrays each, and one file per vector space beside it.

A segment's file is written aside, synced and renamed, so a name that exists is whole. A vector file
is written in place; what is not yet synced there still stands in the store and is written again.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
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
from holdfast.memory.engine.vectors import Quantised, empty, words_for

_MAGIC = b"HOLDSEG1"
_ALIGN = 64
_CHUNK = 8_192
_SUFFIXES = frozenset({".seg", ".vec", ".new"})


class DamagedSegment(Exception):
    """A segment's file is missing or not whole; its rows must be indexed again."""


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
        described[key] = [values.dtype.str, len(values), offset]
        offset += -(-values.nbytes // _ALIGN) * _ALIGN
    header = json.dumps({"arrays": described, "bytes": offset}).encode()
    header += b" " * (-(len(_MAGIC) + 8 + len(header)) % _ALIGN)
    out.write(_MAGIC + len(header).to_bytes(8, "little") + header)
    for values in arrays.values():
        out.write(np.ascontiguousarray(values).data)
        out.write(b"\0" * (-values.nbytes % _ALIGN))


def read_segment(folder: Path, name: str) -> tuple[Segment, State]:
    """Map a segment's file; the columns are copied, the postings stay on disk until touched."""
    try:
        arrays = _map_arrays(folder / f"{name}.seg")
        postings = Postings(
            arrays["terms"], arrays["starts"], arrays["posting_rows"], arrays["posting_codes"]
        )
        columns = {key: np.array(arrays[key]) for key in (*COLUMNS, *MOVING)}
    except (OSError, ValueError, KeyError) as error:
        raise DamagedSegment(f"{name}: {error}") from error
    return assemble(name, columns, postings, {})


def _map_arrays(path: Path) -> dict[str, NDArray[Any]]:
    with path.open("rb") as source:
        view = mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ)
    start = len(_MAGIC) + 8
    if view[: len(_MAGIC)] != _MAGIC:
        raise ValueError("not a segment")
    size = int.from_bytes(view[len(_MAGIC) : start], "little")
    header = json.loads(view[start : start + size])
    if len(view) != start + size + header["bytes"]:
        raise ValueError("not whole")
    return {
        key: np.frombuffer(view, dtype=dtype, count=count, offset=start + size + offset)
        for key, (dtype, count, offset) in header["arrays"].items()
    }


def vector_path(folder: Path, name: str, space: int, dims: int) -> Path:
    return folder / f"{name}.{space}.{dims}.vec"


def vectors_beside(folder: Path, name: str, rows: int, *, read_only: bool = False) -> dict[int, Quantised]:
    """Every vector file of a segment by its space; of those who only read, every one that is whole."""
    found: dict[int, Quantised] = {}
    for path in folder.glob(f"{name}.*.*.vec"):
        _, space, dims, _ = path.name.split(".")
        if read_only:
            with suppress(OSError, ValueError):
                found[int(space)] = _mapped_vectors(path, rows, int(dims))
        else:
            found[int(space)] = open_vectors(folder, name, int(space), rows, int(dims))
    return found


def _mapped_vectors(path: Path, rows: int, dims: int) -> Quantised:
    """A vector file as its writer has it at any moment."""
    with path.open("rb") as file:
        view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if len(view) != _vector_bytes(rows, dims):
        raise ValueError("not whole")
    return _quantised(view, rows, dims)


def _vector_bytes(rows: int, dims: int) -> int:
    return -(-rows * dims // 8) * 8 + words_for(dims) * rows * 8 + rows * 4


def open_vectors(folder: Path, name: str, space: int, rows: int, dims: int) -> Quantised:
    """Map a vector file for reading and writing in place, made empty if there is none."""
    path = vector_path(folder, name, space, dims)
    size = _vector_bytes(rows, dims)
    with open(path, "r+b" if path.exists() else "w+b", opener=private_opener) as file:
        if os.fstat(file.fileno()).st_size != size:
            file.truncate(0)
            file.truncate(size)
        view = mmap.mmap(file.fileno(), size)
    return _quantised(view, rows, dims)


def _quantised(view: mmap.mmap, rows: int, dims: int) -> Quantised:
    code_bytes, bit_bytes = -(-rows * dims // 8) * 8, words_for(dims) * rows * 8
    return Quantised(
        np.frombuffer(view, np.int8, rows * dims).reshape(rows, dims),
        np.frombuffer(view, np.float32, rows, code_bytes + bit_bytes),
        np.frombuffer(view, np.uint64, words_for(dims) * rows, code_bytes).reshape(-1, rows),
    )


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
    with open(vector_path(folder, name, space, dims), "wb", opener=private_opener) as out:
        for low in range(0, rows, _CHUNK):
            go_on()
            high = min(rows, low + _CHUNK)
            chunk = empty(high - low, dims)
            gather(blocks, plan, low, high, chunk)
            out.write(chunk.codes.data)
            bits[:, low:high], scales[low:high] = chunk.bits, chunk.scales
        out.write(b"\0" * (-rows * dims % 8))
        out.write(bits.data)
        out.write(scales.data)
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
