"""Inverted lists as flat arrays, and BM25 over them.

A posting is a row number and a code that packs the document's length and the term's frequency, so
that a term's weight is one look-up in a small table made for the average length at hand.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

K1 = 1.2
B = 0.75
LONGEST = 4095
MOST_FREQUENT = 15
MAX_ROWS = 1 << 24
_MAX_TERMS = 1 << 24

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Postings:
    """`rows[starts[i]:starts[i + 1]]` are the ascending rows that hold the term `terms[i]`."""

    terms: NDArray[np.uint64]
    starts: Ints
    rows: NDArray[np.int32]
    codes: NDArray[np.uint16]

    def spans(self, wanted: NDArray[np.uint64]) -> list[tuple[int, int]]:
        """For each wanted term where its postings begin and end; equal where it has none."""
        if not len(self.terms):
            return [(0, 0)] * len(wanted)
        at = np.minimum(np.searchsorted(self.terms, wanted), len(self.terms) - 1)
        known = self.terms[at] == wanted
        first = np.where(known, self.starts[at], 0)
        last = np.where(known, self.starts[at + 1], 0)
        return list(zip(first.tolist(), last.tolist(), strict=True))


@lru_cache(maxsize=1 << 16)
def term_key(term: str) -> int:
    """A stable 64-bit name for a term, so that no dictionary of words has to be kept in step."""
    return int.from_bytes(blake2b(term.encode(), digest_size=8).digest())


def term_keys(terms: Iterable[str]) -> NDArray[np.uint64]:
    return np.array(list(map(term_key, terms)), dtype=np.uint64)


def lengths_of(analysed: Sequence[Sequence[str]]) -> NDArray[np.uint16]:
    return np.array([min(len(terms), LONGEST) for terms in analysed], dtype=np.uint16)


def build(analysed: Sequence[Sequence[str]]) -> Postings:
    """Postings of freshly analysed documents, row by row in the order given."""
    counts = np.array([len(terms) for terms in analysed], dtype=np.int64)
    keys = term_keys(chain.from_iterable(analysed))
    names, ranks = np.unique(keys, return_inverse=True)
    rows = np.repeat(np.arange(len(analysed), dtype=np.int64), counts)
    places, frequency = np.unique(ranks.astype(np.int64) << 24 | rows, return_counts=True)
    found = places & (MAX_ROWS - 1)
    codes = lengths_of(analysed)[found] << 4 | np.minimum(frequency, MOST_FREQUENT)
    return _assemble(names, places >> 24, found, codes.astype(np.uint16))


def merge(parts: Sequence[tuple[Postings, NDArray[np.int32]]]) -> Postings:
    """One set of postings from several; each part's map gives its rows' new numbers, -1 to drop."""
    names = np.unique(np.concatenate([part.terms for part, _ in parts]))
    if len(names) >= _MAX_TERMS:
        raise OverflowError("too many different terms for one segment")
    packed = np.concatenate([_packed(part, names, moved) for part, moved in parts])
    packed.sort()
    rows = (packed >> np.uint64(16)) & np.uint64(MAX_ROWS - 1)
    codes = (packed & np.uint64(0xFFFF)).astype(np.uint16)
    return _assemble(names, (packed >> np.uint64(40)).astype(np.int64), rows, codes)


def _packed(part: Postings, names: NDArray[np.uint64], moved: NDArray[np.int32]) -> NDArray[np.uint64]:
    """Term, row and code in one number each, so that a plain sort puts a merged list in order."""
    ranks = np.searchsorted(names, part.terms).astype(np.uint64)
    of_posting = np.repeat(ranks, np.diff(part.starts))
    rows = moved[part.rows]
    kept = rows >= 0
    packed = of_posting[kept] << np.uint64(40)
    packed |= rows[kept].astype(np.uint64) << np.uint64(16)
    packed |= part.codes[kept]
    return packed


def _assemble(
    names: NDArray[np.uint64], ranks: Ints, rows: NDArray[Any], codes: NDArray[np.uint16]
) -> Postings:
    counts = np.bincount(ranks, minlength=len(names)) if len(names) else np.zeros(0, np.int64)
    used = counts > 0
    starts = np.zeros(int(used.sum()) + 1, dtype=np.int64)
    np.cumsum(counts[used], out=starts[1:])
    return Postings(names[used], starts, rows.astype(np.int32), codes)


@lru_cache(maxsize=64)
def weights(average: float, longest: int) -> Floats:
    """BM25's term weight (without idf) for every code of documents up to `longest`."""
    length, frequency = np.divmod(np.arange((longest + 1) << 4, dtype=np.float64), 16)
    norm = K1 * (1 - B + B * length / max(average, 1.0))
    table: Floats = (frequency * (K1 + 1) / (frequency + norm)).astype(np.float32)
    table.setflags(write=False)
    return table


def idf(documents: int, having: int) -> float:
    """How much a term tells: large for a rare one, never negative."""
    return math.log(1 + (documents - having + 0.5) / (having + 0.5))
