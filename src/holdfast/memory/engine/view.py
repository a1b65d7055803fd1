"""Searching one moment of the embedded index within one filter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import InvalidInput
from holdfast.memory.documents import Document
from holdfast.memory.engine import vectors as vec
from holdfast.memory.engine.postings import idf, term_keys, weights
from holdfast.memory.engine.protocol import Metadata, Numbers, Scores, Top
from holdfast.memory.engine.segment import Segment
from holdfast.memory.engine.selection import Piece
from holdfast.memory.engine.symbols import Groups, Symbols

if TYPE_CHECKING:
    from holdfast.memory.engine.store import Store

_MOST_STEPS = 32
_SAMPLE_STEP = 61
_SURE = 20
_LOWEST, _HIGHEST = np.int64(-1), np.int64(2**62)
_ORDINAL = np.int64(2**32 - 1)

Located = tuple[Piece, NDArray[np.int64], NDArray[np.int64]]


class EmbeddedView:
    """The pieces of a snapshot that a filter selects; numbers count through them in order."""

    def __init__(
        self,
        pieces: list[Piece],
        store: Store,
        symbols: Symbols,
        groups: Groups,
        spaces: dict[str, tuple[int, int]],
    ) -> None:
        self._pieces = pieces
        self._store = store
        self._symbols = symbols
        self._groups = groups
        self._spaces = spaces
        self._starts = np.array([piece.start for piece in pieces], np.int64)
        self._size = sum(piece.rows for piece in pieces)
        self._last: tuple[tuple[str, ...], Scores] | None = None
        self._placed: tuple[Numbers, list[Located]] | None = None

    @property
    def count(self) -> int:
        return sum(piece.kept for piece in self._pieces)

    def lexical(self, terms: Sequence[str], limit: int) -> Top:
        """The best by BM25, counted over the scope as if it were the whole index."""
        wanted = tuple(dict.fromkeys(terms))
        scores = np.zeros(self._size, np.float32)
        for piece, rows, gains in self._gains(wanted):
            part = scores[piece.start : piece.start + piece.rows]
            part[rows - np.int32(piece.low) if piece.low else rows] += gains()
        for piece in self._pieces:
            if piece.keep is not None:
                scores[piece.start : piece.start + piece.rows] *= piece.keep
        self._last = wanted, scores
        found = greatest(scores, limit)
        return _top(found, scores[found], limit)

    def lexical_scores(self, terms: Sequence[str], numbers: Numbers) -> Scores:
        """BM25 of some documents: read off the last search, or looked up posting by posting."""
        wanted = tuple(dict.fromkeys(terms))
        if self._last is not None and self._last[0] == wanted:
            return self._last[1][numbers]
        out = np.zeros(len(numbers), np.float32)
        located = {id(piece): (at, rows) for piece, at, rows in self._located(numbers)}
        for piece, rows, gains in self._gains(wanted):
            if id(piece) in located:
                at, own = located[id(piece)]
                place = np.minimum(np.searchsorted(rows, own), len(rows) - 1)
                out[at] += np.where(rows[place] == own, gains(place), np.float32(0))
        return out

    def _gains(self, terms: tuple[str, ...]) -> Iterator[tuple[Piece, NDArray[np.int32], Gains]]:
        """Term by term and piece by piece: the living rows, and what the term adds to each."""
        population = sum(piece.population for piece in self._pieces)
        if not population or not terms:
            return
        average = sum(piece.total_length for piece in self._pieces) / population
        table = weights(average, max(piece.segment.longest for piece in self._pieces))
        keys = term_keys(terms)
        spans = [piece.segment.postings.spans(keys) for piece in self._pieces]
        for term in range(len(terms)):
            found = [
                (piece, *_postings(piece, *span[term]))
                for piece, span in zip(self._pieces, spans, strict=True)
                if span[term][0] < span[term][1]
            ]
            factor = np.float32(idf(population, sum(len(rows) for _, rows, _ in found)))
            for piece, rows, codes in found:
                if len(rows):
                    yield piece, rows, Gains(table, codes, factor)

    def dense(self, fingerprint: str, vector: NDArray[Any], limit: int) -> Top:
        """The nearest by cosine among the documents that have a vector of this fingerprint."""
        query, space = self._query(fingerprint, vector)
        if query is None:
            return _top(np.zeros(0, np.int64), np.zeros(0, np.float32), limit)
        if self._size <= vec.EXACT_ROWS:
            return _top(*self._all_products(query, space), limit)
        return _top(*self._near_products(query, space, limit), limit)

    def with_vector(self, fingerprint: str) -> int:
        space, _ = self._spaces.get(fingerprint, (0, 0))
        total = 0
        for piece in self._pieces:
            block = piece.segment.vectors.get(space)
            if block is not None:
                there = block.scales[piece.low : piece.high] > 0
                total += int(np.count_nonzero(there if piece.keep is None else there & piece.keep))
        return total

    def dense_scores(self, fingerprint: str, vector: NDArray[Any], numbers: Numbers) -> Scores:
        query, space = self._query(fingerprint, vector)
        if query is None:
            return np.full(len(numbers), np.nan, np.float32)
        return self._products(space, query, numbers)

    def _query(self, fingerprint: str, vector: NDArray[Any]) -> tuple[vec.Floats | None, int]:
        space, dims = self._spaces.get(fingerprint, (0, 0))
        query = np.asarray(vector, np.float32).ravel()
        if not space or not self._pieces:
            return None, space
        if len(query) != dims:
            raise InvalidInput(
                f"a vector of {len(query)} numbers in a space of {dims}",
                hint="Embed the question with the model that the fingerprint names.",
            )
        norm = float(np.linalg.norm(query))
        return (query / np.float32(norm) if norm else None), space

    def _all_products(self, query: vec.Floats, space: int) -> tuple[Numbers, Scores]:
        numbers, scores = [np.zeros(0, np.int64)], [np.zeros(0, np.float32)]
        for piece in self._pieces:
            block = piece.segment.vectors.get(space)
            if block is None:
                continue
            there = block.scales[piece.low : piece.high] > 0
            if piece.keep is not None:
                there &= piece.keep
            numbers.append(np.flatnonzero(there) + piece.start)
            scores.append(vec.products(block, piece.low, piece.high, query)[there])
        return np.concatenate(numbers), np.concatenate(scores)

    def _near_products(self, query: vec.Floats, space: int, limit: int) -> tuple[Numbers, Scores]:
        """Exact scores of the rows nearest by sign bits, and of more where the first were too few."""
        found = self._distances(query, space)
        usual, most = vec.kept_for(self._size, limit)
        bar = vec.nearest(found, usual, len(query))
        numbers = np.flatnonzero(found <= bar)
        scores = self._products(space, query, numbers)
        sure = min(limit, _SURE, len(scores))
        if not sure:
            return numbers, scores
        worst = float(np.partition(scores, len(scores) - sure)[len(scores) - sure])
        wider = vec.reach(worst, len(query))
        if wider > bar:
            wider = min(wider, vec.nearest(found, most, len(query)))
            more = np.flatnonzero((found > bar) & (found <= wider))
            numbers = np.concatenate([numbers, more])
            scores = np.concatenate([scores, self._products(space, query, more)])
        return numbers, scores

    def _distances(self, query: vec.Floats, space: int) -> vec.Distances:
        bits = vec.signs(query[None, :])[:, 0]
        found, farthest = vec.unknown_distances(self._size, len(query))
        for piece in self._pieces:
            block = piece.segment.vectors.get(space)
            if block is None:
                continue
            part = found[piece.start : piece.start + piece.rows]
            vec.distances(block, piece.low, piece.high, bits, part)
            part[block.scales[piece.low : piece.high] == 0] = farthest
            if piece.keep is not None:
                part[~piece.keep] = farthest
        return found

    def _products(self, space: int, query: vec.Floats, numbers: Numbers) -> Scores:
        out = np.full(len(numbers), np.nan, np.float32)
        for piece, at, rows in self._located(numbers):
            block = piece.segment.vectors.get(space)
            if block is not None:
                found = vec.products_at(block, rows, query)
                found[block.scales[rows] == 0] = np.nan
                out[at] = found
        return out

    def _located(self, numbers: Numbers) -> list[Located]:
        """Per piece: where in `numbers` its rows stand, and which rows they are; kept for the next call."""
        if self._placed is not None and self._placed[0] is numbers:
            return self._placed[1]
        owner = np.searchsorted(self._starts, numbers, side="right") - 1
        found = []
        for index in np.flatnonzero(np.bincount(owner)).tolist():
            piece = self._pieces[index]
            at = np.flatnonzero(owner == index)
            found.append((piece, at, numbers[at] - piece.start + piece.low))
        self._placed = numbers, found
        return found

    def neighbours(self, numbers: Numbers) -> Numbers:
        """Most lie in the rows beside, which are sorted by thread; the rest are searched for."""
        places = self._gathered(numbers, "place")
        out = np.full((len(numbers), 2), -1, np.int64)
        for piece, at, rows in self._located(numbers):
            for side, step in ((0, -1), (1, 1)):
                out[at, side] = _adjacent(piece, rows, places[at], step)
        threaded = places >> 32 > 0
        for side, step, could in ((0, -1, places & _ORDINAL > 0), (1, 1, True)):
            rest = np.flatnonzero((out[:, side] < 0) & threaded & could)
            if len(rest):
                out[rest, side] = self._searched(places[rest], step)
        return out

    def _searched(self, places: NDArray[np.int64], step: int) -> Numbers:
        """The nearest on one side over all segments, each of which may hold part of a thread."""
        out = np.full(len(places), -1, np.int64)
        held = np.full(len(places), _LOWEST if step < 0 else _HIGHEST)
        for segment, pieces in self._by_segment():
            at = np.searchsorted(segment.places, places, side="left" if step < 0 else "right") - (step < 0)
            there = segment.places[np.minimum(at, segment.rows - 1)]
            if not ((there ^ places) >> 32 == 0).any():
                continue
            number, place = self._beside(segment, pieces, places, at, step)
            nearer = (number >= 0) & ((place - held) * step < 0)
            out[nearer], held[nearer] = number[nearer], place[nearer]
        return out

    def _by_segment(self) -> Iterator[tuple[Segment, list[Piece]]]:
        for _, pieces in groupby(self._pieces, key=lambda piece: id(piece.segment)):
            own = list(pieces)
            yield own[0].segment, own

    def _beside(
        self,
        segment: Segment,
        pieces: list[Piece],
        places: NDArray[np.int64],
        at: NDArray[np.int64],
        step: int,
    ) -> tuple[Numbers, NDArray[np.int64]]:
        """Per place the next row of its thread in one direction that the filter lets through."""
        number = np.full(len(places), -1, np.int64)
        place = np.zeros(len(places), np.int64)
        waiting = np.arange(len(places))
        for _ in range(_MOST_STEPS):
            waiting = waiting[(at[waiting] >= 0) & (at[waiting] < segment.rows)]
            there = segment.places[at[waiting]]
            same = there >> 32 == places[waiting] >> 32
            waiting, there = waiting[same], there[same]
            if not len(waiting):
                break
            found = self._numbers_of(pieces, segment.by_place[at[waiting]])
            good = (found >= 0) & (there != places[waiting])
            number[waiting[good]], place[waiting[good]] = found[good], there[good]
            waiting = waiting[~good]
            at[waiting] += step
        return number, place

    def _numbers_of(self, pieces: list[Piece], rows: NDArray[np.int32]) -> Numbers:
        """The view's numbers of a segment's rows, -1 for what the filter leaves out."""
        out = np.full(len(rows), -1, np.int64)
        for piece in pieces:
            at = np.flatnonzero((rows >= piece.low) & (rows < piece.high))
            if piece.keep is not None:
                at = at[piece.keep[rows[at] - piece.low]]
            out[at] = rows[at] + np.int64(piece.start - piece.low)
        return out

    def _gathered(self, numbers: Numbers, name: str) -> NDArray[Any]:
        out: NDArray[Any] = np.zeros(len(numbers), np.int64)
        for piece, at, rows in self._located(numbers):
            moving = name in {"group", "topic", "task"}
            column = getattr(piece.state, name) if moving else piece.segment.columns[name]
            out[at] = column[rows]
        return out

    def speakers(self) -> list[str]:
        codes: set[int] = set()
        for piece in self._pieces:
            if piece.keep is None:
                codes |= piece.segment.distinct("speaker", piece.low, piece.high)
            else:
                column = piece.segment.columns["speaker"][piece.low : piece.high]
                codes |= set(np.unique(column[piece.keep]).tolist())
        names = self._symbols.names(np.array(sorted(codes), np.int32))
        return [name for name in names if name is not None]

    def recent(self, limit: int) -> Numbers:
        found = [np.zeros(0, np.int64)]
        for piece in self._pieces:
            kept = np.arange(piece.rows) if piece.keep is None else np.flatnonzero(piece.keep)
            found.append(kept + piece.start)
        numbers = np.concatenate(found)
        at = self._gathered(numbers, "at")
        return numbers[np.lexsort((numbers, -at))[:limit]]

    def metadata(self, numbers: Numbers) -> Metadata:
        return Metadata(
            at=self._gathered(numbers, "at"),
            curated=self._gathered(numbers, "curated").astype(np.bool_),
            length=self._gathered(numbers, "length"),
            source=self._groups.sources(self._gathered(numbers, "group")),
            speaker=self._symbols.names(self._gathered(numbers, "speaker")),
            topic=self._symbols.names(self._gathered(numbers, "topic")),
            session=self._symbols.names(self._gathered(numbers, "session")),
        )

    def documents(self, numbers: Numbers) -> list[Document | None]:
        nums = self._gathered(numbers, "num").tolist()
        found = self._store.documents(nums)
        return [found.get(num) for num in nums]


@dataclass(frozen=True, slots=True)
class Gains:
    """What one term adds to the rows of its postings, computed for as many as are asked for."""

    table: Scores
    codes: NDArray[np.uint16]
    factor: np.float32

    def __call__(self, chosen: NDArray[np.int64] | None = None) -> Scores:
        gains: Scores = self.table[self.codes if chosen is None else self.codes[chosen]]
        gains *= self.factor
        return gains


def _postings(piece: Piece, first: int, last: int) -> tuple[NDArray[np.int32], NDArray[np.uint16]]:
    """One term's rows within the piece and their codes, living rows of the scope only."""
    lists = piece.segment.postings
    if piece.rows < piece.segment.rows:
        bounds = np.array([piece.low, piece.high], np.int32)
        low, high = np.searchsorted(lists.rows[first:last], bounds).tolist()
        first, last = first + low, first + high
    rows, codes = lists.rows[first:last], lists.codes[first:last]
    if piece.live is None:
        return rows, codes
    alive = piece.live[rows - np.int32(piece.low)]
    return rows[alive], codes[alive]


def _adjacent(piece: Piece, rows: NDArray[np.int64], places: NDArray[np.int64], step: int) -> Numbers:
    """The row beside each if it is the very next of the thread and let through, else -1."""
    beside = np.minimum(np.maximum(rows + step, piece.low), piece.high - 1)
    good = (piece.segment.columns["place"][beside] == places + step) & (places >> 32 > 0)
    if piece.keep is not None:
        good &= piece.keep[beside - piece.low]
    return np.where(good, beside + (piece.start - piece.low), -1)


def greatest(scores: Scores, limit: int) -> Numbers:
    """Where the `limit` greatest positive scores stand (and perhaps some more).

    A sample tells about how high the bar lies; the count over all rows decides whether it holds.
    """
    if len(scores) > 64 * _SAMPLE_STEP:
        sample = np.sort(scores[::_SAMPLE_STEP])
        place = len(sample) - 1 - 2 * limit // _SAMPLE_STEP
        bar = sample[max(place, 0)]
        if bar > 0:
            found = np.flatnonzero(scores >= bar)
            if len(found) >= limit:
                return found
    return np.flatnonzero(scores > 0)


def _top(numbers: Numbers, scores: Scores, limit: int) -> Top:
    """The greatest scores first; equal ones in the order of their numbers."""
    if not len(scores) or limit <= 0:
        return Top(np.zeros(0, np.int64), np.zeros(0, np.float32), float(scores.max(initial=0)))
    if len(scores) > limit:
        best = np.argpartition(scores, len(scores) - limit)[len(scores) - limit :]
        numbers, scores = numbers[best], scores[best]
    order = np.lexsort((numbers, -scores))
    return Top(numbers[order], scores[order], float(scores[order[0]]))
