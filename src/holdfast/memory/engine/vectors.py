"""Vectors of one fingerprint, row by row beside a segment: int8 codes, and sign bits to scan first.

A scan over few rows computes every product. A scan over many compares sign bits, keeps a generous
share of the nearest and computes the products of those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import InvalidInput

EXACT_ROWS = 12_000
_BLOCK = 65_536
_SAMPLE = 4_096
_PRODUCT_BLOCK = 1_024

Floats = NDArray[np.float32]
Distances = NDArray[np.uint8] | NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class Quantised:
    """Unit vectors as int8 with one scale per row (0: no vector), their signs as 64-bit words, and a
    checksum per row, which goes with it from file to file."""

    codes: NDArray[np.int8]
    scales: Floats
    bits: NDArray[np.uint64]
    sums: NDArray[np.uint32]

    @property
    def dims(self) -> int:
        return int(self.codes.shape[1])

    def rows(self, chosen: NDArray[Any]) -> Quantised:
        return Quantised(self.codes[chosen], self.scales[chosen], self.bits[:, chosen], self.sums[chosen])

    def put(self, rows: NDArray[Any], other: Quantised) -> None:
        """Write rows in place; the scale, which makes a row visible, goes last."""
        self.codes[rows] = other.codes
        self.bits[:, rows] = other.bits
        self.sums[rows] = other.sums
        self.scales[rows] = other.scales

    def drop(self, rows: NDArray[Any]) -> None:
        """Take vectors away."""
        self.scales[rows] = 0
        self.sums[rows] = 0

    def damaged(self, low: int, high: int) -> NDArray[np.int64]:
        """The rows of a range that are not as they were written."""
        part = slice(low, high)
        codes, scales = self.codes[part], self.scales[part]
        good = self.sums[part] == row_sums(codes, scales)
        good &= (scales == 0) | (self.bits[:, part] == signs(codes)).all(axis=0)
        return np.flatnonzero(~good) + low


def words_for(dims: int) -> int:
    return -(-dims // 64)


def empty(rows: int, dims: int) -> Quantised:
    return Quantised(
        np.zeros((rows, dims), np.int8),
        np.zeros(rows, np.float32),
        np.zeros((words_for(dims), rows), np.uint64),
        np.zeros(rows, np.uint32),
    )


def row_sums(codes: NDArray[np.int8], scales: Floats) -> NDArray[np.uint32]:
    """A checksum for each row, 0 where there is no vector: odd factors, so that no single change is lost."""
    rows, dims = codes.shape
    out = np.empty(rows, np.uint32)
    odd = np.arange(dims, dtype=np.uint64) * np.uint64(2 * 2_654_435_761) + np.uint64(1)
    factors = odd.astype(np.uint32)
    for low in range(0, rows, _PRODUCT_BLOCK):
        part = slice(low, low + _PRODUCT_BLOCK)
        out[part] = codes[part].astype(np.uint32) @ factors
    out += np.ascontiguousarray(scales).view(np.uint32) * np.uint32(0x9E3779B1)
    out[scales == 0] = 0
    return out


def quantise(matrix: NDArray[Any]) -> Quantised:
    """Normalise to unit length and round to int8; a zero vector counts as none."""
    raw = np.asarray(matrix, dtype=np.float32)
    norms = np.linalg.norm(raw, axis=1)
    unit = raw / np.where(norms > 0, norms, 1)[:, None]
    scales = (np.abs(unit).max(axis=1, initial=0) / 127).astype(np.float32)
    codes = np.rint(unit / np.where(scales > 0, scales, 1)[:, None]).astype(np.int8)
    return Quantised(codes, scales, signs(codes), row_sums(codes, scales))


def quantised(matrix: NDArray[Any], rows: int) -> Quantised:
    """`quantise` for what a caller gave as one row per document."""
    found = np.asarray(matrix)
    if found.ndim != 2 or len(found) != rows:
        raise InvalidInput(
            f"vectors of shape {found.shape} for {rows} documents", hint="Give one row per document."
        )
    return quantise(found)


def signs(codes: NDArray[Any]) -> NDArray[np.uint64]:
    """Sign bits, one row of 64-bit words per word position, so that scans run over whole columns."""
    rows, dims = codes.shape
    packed = np.zeros((rows, words_for(dims) * 8), np.uint8)
    flags = np.packbits(codes > 0, axis=1)
    packed[:, : flags.shape[1]] = flags
    return np.ascontiguousarray(packed.view(np.uint64).T)


def products(block: Quantised, low: int, high: int, queries: Sequence[Floats]) -> Floats:
    """Cosine of every row in a range with unit queries, converted block by block to stay in cache: a row of
    them for each query. Each product is as it is by itself, whatever else is asked; a matrix product, which
    several threads share, would not be."""
    out = np.empty((len(queries), high - low), np.float32)
    buffer = np.empty((min(_PRODUCT_BLOCK, high - low), block.dims), np.float32)
    for start in range(low, high, _PRODUCT_BLOCK):
        stop = min(high, start + _PRODUCT_BLOCK)
        part = buffer[: stop - start]
        part[...] = block.codes[start:stop]
        for query, own in zip(queries, out, strict=True):
            np.vecdot(part, query, out=own[start - low : stop - low])
    out *= block.scales[low:high]
    return out


def products_at(block: Quantised, rows: NDArray[Any], query: Floats) -> Floats:
    """Cosine of some rows with a unit query, NaN for one without a vector; block by block likewise."""
    out = np.empty(len(rows), np.float32)
    gathered = np.empty((min(_PRODUCT_BLOCK, len(rows)), block.dims), np.int8)
    buffer = np.empty(gathered.shape, np.float32)
    for start in range(0, len(rows), _PRODUCT_BLOCK):
        chosen = rows[start : start + _PRODUCT_BLOCK]
        size = len(chosen)
        np.take(block.codes, chosen, axis=0, out=gathered[:size], mode="clip")
        buffer[:size] = gathered[:size]
        np.vecdot(buffer[:size], query, out=out[start : start + size])
    scales = block.scales[rows]
    out *= scales
    out[scales == 0] = np.nan
    return out


def unknown_distances(rows: int, dims: int) -> tuple[Distances, int]:
    """Room for distances, filled with a value beyond all, in the narrowest type that scans well.

    Only the exact opposite of a query overflows a byte at 256; it is then weighed and found wanting.
    """
    if dims <= 256:
        return np.full(rows, 0xFF, np.uint8), 0xFF
    return np.full(rows, 0xFFFF, np.uint16), 0xFFFF


def distances(block: Quantised, low: int, high: int, query_bits: NDArray[np.uint64], out: Distances) -> None:
    """Count the differing sign bits of every row in a range, block by block to stay in cache."""
    crossed = np.empty(min(_BLOCK, high - low), np.uint64)
    counted = np.empty(len(crossed), np.uint8)
    for start in range(low, high, _BLOCK):
        stop = min(high, start + _BLOCK)
        size = stop - start
        total = out[start - low : stop - low]
        for place, (word, wanted) in enumerate(zip(block.bits, query_bits, strict=True)):
            np.bitwise_xor(word[start:stop], wanted, out=crossed[:size])
            if place == 0 and total.dtype == counted.dtype:
                np.bitwise_count(crossed[:size], out=total)
            elif place == 0:
                total[:] = np.bitwise_count(crossed[:size], out=counted[:size])
            else:
                total += np.bitwise_count(crossed[:size], out=counted[:size])


def kept_for(rows: int, limit: int) -> tuple[int, int]:
    """How many of a bit scan's nearest get their exact product: usually, and at the very most."""
    usual = max(2_000, rows // 400, 10 * limit)
    return usual, max(usual, 16_000, rows // 50)


def farthest(found: Distances, bits: int) -> int:
    """The greatest distance that is one: what is beyond stands for rows that are left out."""
    return min(bits, int(np.iinfo(found.dtype).max) - 1)


def nearest(found: Distances, wanted: int, bits: int) -> int:
    """The least distance within which at least `wanted` rows lie, wherever these lie.

    A sample tells about where it is; the count over all rows moves it to where it is.
    """
    bits = farthest(found, bits)
    sample = np.sort(found[:: max(1, len(found) // _SAMPLE)], kind="stable")  # so small numbers are counted
    bar = min(int(sample[min(len(sample) - 1, len(sample) * wanted // len(found))]), bits)
    if np.count_nonzero(found <= bar) < wanted:
        while bar < bits:
            bar += 1
            if np.count_nonzero(found <= bar) >= wanted:
                break
        return bar
    while bar > 0 and np.count_nonzero(found < bar) >= wanted:
        bar -= 1
    return bar


def reach(cosine: float, bits: int) -> int:
    """Within how many differing bits 99 % of the rows with at least this cosine lie.

    Each sign differs with a chance of angle / π, so the count is nearly normal around that share.
    """
    chance = float(np.arccos(np.clip(cosine, -1, 1))) / np.pi
    return int(bits * chance + 2.33 * np.sqrt(bits * chance * (1 - chance)))


def encoded(block: Quantised) -> list[bytes]:
    """One blob per row, for keeping vectors in a store."""
    rows = zip(block.sums, block.scales, block.codes, strict=True)
    return [total.tobytes() + scale.tobytes() + codes.tobytes() for total, scale, codes in rows]


def decoded(blobs: list[bytes], dims: int) -> Quantised:
    """Rows from their blobs; one that is not as it was written comes back without a vector."""
    whole = [blob if len(blob) == dims + 8 else _with_sum(blob, dims) for blob in blobs]
    raw = np.frombuffer(b"".join(whole), np.uint8).reshape(len(blobs), dims + 8)
    sums, scales = (raw[:, at : at + 4].copy().view(np.uint32).ravel() for at in (0, 4))
    codes = raw[:, 8:].view(np.int8)
    block = Quantised(codes, scales.view(np.float32), signs(codes), sums)
    block.drop(block.damaged(0, len(blobs)))
    return block


def _with_sum(blob: bytes, dims: int) -> bytes:
    """A blob from before there were checksums; one of another length is nobody's vector."""
    if len(blob) != dims + 4:
        return bytes(dims + 8)
    raw = np.frombuffer(blob, np.uint8)[None, :]
    total = row_sums(raw[:, 4:].view(np.int8), raw[:, :4].copy().view(np.float32).ravel())
    return total.tobytes() + blob
