"""Searching one moment of the embedded index within one filter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import InvalidInput
from holdfast.memory.documents import Document
from holdfast.memory.engine import threads
from holdfast.memory.engine import vectors as vec
from holdfast.memory.engine.postings import MOST_FREQUENT, idf, term_keys, weights
from holdfast.memory.engine.protocol import Metadata, Numbers, Scores, Top, Whereabouts
from holdfast.memory.engine.segment import MOVING
from holdfast.memory.engine.selection import Located, Piece, located
from holdfast.memory.engine.symbols import Groups, Symbols
from holdfast.memory.text import CUES

_SAMPLE_STEP = 61
_SURE = 20
_LOOK = 8_192
_FEW_POSTINGS = 20_000
_MANY_POSTINGS = 100_000
_SPARSE = 8
_ROUNDING = 1.0001
_NO_NUMBERS = np.zeros(0, np.int64)
_BITS = {cue: 1 << place for place, cue in enumerate(CUES)}

Stored = Callable[[Sequence[int]], Mapping[int, Document]]
Listed = tuple[Piece, NDArray[np.int32], NDArray[np.uint16]]
"""The living rows of one term in a piece, and their codes."""


class EmbeddedView:
    """The pieces of a snapshot that a filter selects; numbers count through them in order."""

    def __init__(
        self,
        pieces: list[Piece],
        stored: Stored,
        symbols: Symbols,
        groups: Groups,
        spaces: dict[str, tuple[int, int]],
    ) -> None:
        self._pieces = pieces
        self._stored = stored
        self._symbols = symbols
        self._groups = groups
        self._spaces = spaces
        self._starts = np.array([piece.start for piece in pieces], np.int64)
        self._size = sum(piece.rows for piece in pieces)
        self._count: int | None = None
        self._last: tuple[tuple[str, ...], Scores] | None = None
        self._placed: tuple[Numbers, list[Located]] | None = None
        self._lists: dict[str, list[Listed]] = {}
        self._looked_up: tuple[Numbers | None, dict[str, NDArray[np.uint16]]] = None, {}
        self._weighed: tuple[int, int] | None = None
        self._beyond: dict[tuple[int, int], vec.Distances] = {}
        self.postings_read = 0
        """How many were gone through so far, beside those that were looked up."""

    @property
    def count(self) -> int:
        if self._count is None:
            self._count = sum(piece.kept for piece in self._pieces)
        return self._count

    def lexical(self, terms: Sequence[str], limit: int) -> Top:
        """The best by BM25, counted over the scope as if it were the whole index."""
        wanted = tuple(dict.fromkeys(terms))
        lists, gains = self._postings(wanted), self._gains(wanted)
        having = sum(len(rows) for listed in lists for _, rows, _ in listed)
        found = self._likely(lists, gains, limit) if having > _FEW_POSTINGS else None
        if found is not None:
            return self._top(found, self.lexical_scores(wanted, found), limit)
        few = having * _SPARSE < self._size
        sums = _Sums(self._size, lists=few)
        for listed, gain in zip(lists, gains, strict=True):
            sums.add(listed, gain)
        self.postings_read += having
        self._last = wanted, sums.scores
        found = sums.numbers() if few else greatest(sums.scores, limit)
        return self._top(found, sums.scores[found], limit)

    def lexical_each(self, asked: Sequence[Sequence[str]], limit: int) -> list[Top]:
        """What a term adds to which documents is worked out once for all questions that have it, and who may
        be found is asked of what they come to, not of each posting. Where the lists are long, each question
        looks for a way around them by itself."""
        every = [tuple(dict.fromkeys(terms)) for terms in asked]
        terms = list(dict.fromkeys(chain(*every)))
        lists = dict(zip(terms, self._raw_postings(terms), strict=True))
        gains = dict(zip(terms, self._gains(terms, [_living_of(lists[term]) for term in terms]), strict=True))
        added: dict[str, list[tuple[Numbers, Scores]]] = {}
        sums, kept = np.zeros(self._size, np.float32), self._kept()
        found: list[tuple[Numbers, Scores] | Top] = []
        for wanted in every:
            reading = sum(len(rows) for term in wanted for _, rows, _ in lists[term])
            if reading > _MANY_POSTINGS:
                found.append(self.lexical(wanted, limit))
                continue
            sums.fill(0)
            for term in wanted:
                if term not in added:
                    added[term] = [
                        (rows + np.int64(piece.start - piece.low), gains[term](codes))
                        for piece, rows, codes in lists[term]
                    ]
                for numbers, gained in added[term]:
                    sums[numbers] += gained
            if kept is not None:
                sums *= kept
            self.postings_read += reading
            numbers = greatest(sums, limit)
            found.append((numbers, sums[numbers]))
        return self._tops(found, limit)

    def _kept(self) -> NDArray[np.bool_] | None:
        """Which documents of the view the whole filter lets through; None for all."""
        if all(piece.keep is None for piece in self._pieces):
            return None
        every = [np.ones(one.rows, np.bool_) if one.keep is None else one.keep for one in self._pieces]
        return np.concatenate(every)

    def _raw_postings(self, terms: Sequence[str]) -> list[list[Listed]]:
        """Each term's lists of the pieces that have it, with rows that died or lie elsewhere by now."""
        keys = term_keys(terms)
        found: list[list[Listed]] = [[] for _ in terms]
        for piece in self._pieces:
            lists = piece.segment.postings
            for own, (first, last) in zip(found, lists.spans(keys), strict=True):
                if first < last:
                    first, last = _within_piece(piece, first, last)
                    own.append((piece, lists.rows[first:last], lists.codes[first:last]))
        return found

    def _likely(self, lists: list[list[Listed]], gains: list[Gain], limit: int) -> Numbers | None:
        """Documents that the best are among, found by the rarer terms alone; None where those do not decide.

        What has none of them cannot have more than all the commoner ones give at most: once enough documents
        have more than that, the long lists are not read through, but looked into for these documents.
        """
        sizes = [sum(len(rows) for _, rows, _ in listed) for listed in lists]
        rising = sorted(range(len(lists)), key=sizes.__getitem__)
        sums, read, left = _Sums(self._size), 0, sum(sizes)
        for count, place in enumerate(rising, 1):
            read, left = read + sizes[place], left - sizes[place]
            if left <= read:
                return None
            sums.add(lists[place], gains[place])
            self.postings_read += sizes[place]
            rest = _ROUNDING * sum(gains[other].most for other in rising[count:])
            if read > limit and sum(gains[other].most for other in rising[:count]) > rest:
                numbers = sums.numbers()
                reached = sums.scores[numbers]
                if len(numbers) > limit > 0:
                    bar = float(np.partition(reached, len(numbers) - limit)[len(numbers) - limit])
                    if bar > rest:
                        return np.sort(numbers[reached >= bar - rest])
        return None

    def lexical_scores(self, terms: Sequence[str], numbers: Numbers) -> Scores:
        """BM25 of some documents: read off the last search, or looked up posting by posting."""
        wanted = tuple(dict.fromkeys(terms))
        if self._last is not None and self._last[0] == wanted:
            return self._last[1][numbers]
        out = np.zeros(len(numbers), np.float32)
        for gain, codes in zip(self._gains(wanted), self._codes(wanted, numbers), strict=True):
            out += gain(codes)
        return out

    def holding(self, terms: Sequence[str], numbers: Numbers) -> NDArray[np.bool_]:
        if _BITS.keys() >= set(terms):
            return self._marked([_BITS[term] for term in terms], numbers)
        held: NDArray[np.bool_] = self._codes(terms, numbers) != 0
        return held

    def _marked(self, bits: Sequence[int], numbers: Numbers) -> NDArray[np.bool_]:
        """Which of these documents have these cues: one look at each, however long the lists are."""
        marks = np.zeros(len(numbers), np.uint8)
        for piece, at, rows in self._located(numbers):
            marks[at] = piece.segment.marks(CUES)[rows]
        held: NDArray[np.bool_] = (marks & np.array(bits, np.uint8)[:, None]) != 0
        return held

    def frequencies(self, terms: Sequence[str]) -> list[int]:
        return [sum(len(rows) for _, rows, _ in lists) for lists in self._postings(terms)]

    def _codes(self, terms: Sequence[str], numbers: Numbers) -> NDArray[np.uint16]:
        """Term by term the codes of these documents' postings, 0 where there is none; kept for the next
        question about the same documents."""
        within = self._within_last(terms, numbers)
        if within is not None:
            return within
        if self._looked_up[0] is not numbers:
            self._looked_up = numbers, {}
        known = self._looked_up[1]
        located = {id(piece): (at, own.astype(np.int32)) for piece, at, own in self._located(numbers)}
        out = np.zeros((len(terms), len(numbers)), np.uint16)
        for place, (term, listed) in enumerate(zip(terms, self._postings(terms), strict=True)):
            if term in known:
                out[place] = known[term]
                continue
            known[term] = found = out[place]
            for piece, rows, codes in listed:
                if id(piece) in located:
                    at, own = located[id(piece)]
                    nearest = rows.searchsorted(own)
                    held = rows.take(nearest, mode="clip") == own
                    found[at] = codes.take(nearest, mode="clip") * held
        return out

    def _within_last(self, terms: Sequence[str], numbers: Numbers) -> NDArray[np.uint16] | None:
        """The same for documents that were last asked about among others, and terms looked up then."""
        last, known = self._looked_up
        if last is None or last is numbers or not len(last) or not known.keys() >= set(terms):
            return None
        at = np.minimum(last.searchsorted(numbers), len(last) - 1)
        if not (last[at] == numbers).all():
            return None
        return np.array([known[term][at] for term in terms], np.uint16).reshape(len(terms), len(numbers))

    def _gains(self, terms: Sequence[str], having: Sequence[int] | None = None) -> list[Gain]:
        """What each of the terms, which so many have, adds to a document: by how often it is in it, and how
        long that is."""
        if self._weighed is None:
            self._weighed = (
                sum(piece.population for piece in self._pieces),
                sum(piece.total_length for piece in self._pieces),
            )
        population, length = self._weighed
        longest = max((piece.segment.longest for piece in self._pieces), default=0)
        table = weights(length / max(population, 1), longest)
        counts = self.frequencies(terms) if having is None else having
        return [Gain(table, np.float32(idf(population, count))) for count in counts]

    def _postings(self, terms: Sequence[str]) -> list[list[Listed]]:
        """Each term's lists of the pieces that have it, kept: ranking asks for the same ones again."""
        unread = [term for term in dict.fromkeys(terms) if term not in self._lists]
        if unread:
            keys = term_keys(unread)
            self._lists |= {term: [] for term in unread}
            for piece in self._pieces:
                for term, (first, last) in zip(unread, piece.segment.postings.spans(keys), strict=True):
                    if first < last:
                        rows, codes = _living(piece, first, last)
                        self._lists[term] += [(piece, rows, codes)] if len(rows) else []
        return [self._lists[term] for term in terms]

    def dense(self, fingerprint: str, vector: NDArray[Any], limit: int) -> Top:
        """The nearest by cosine among the documents that have a vector of this fingerprint."""
        query, space = self._query(fingerprint, vector)
        if query is None:
            return self._top(np.zeros(0, np.int64), np.zeros(0, np.float32), limit)
        if self._size <= vec.EXACT_ROWS:
            return self._top(*self._all_products([query], space)[0], limit)
        return self._top(*self._near_products(query, space, limit), limit)

    def dense_each(self, fingerprint: str, vectors: Sequence[NDArray[Any]], limit: int) -> list[Top]:
        """Where every product is computed, a vector of the index is read once for all questions."""
        asked = [self._query(fingerprint, vector) for vector in vectors]
        queries = [query for query, _ in asked if query is not None]
        if self._size > vec.EXACT_ROWS or len(queries) < len(asked):
            return [self.dense(fingerprint, vector, limit) for vector in vectors]
        return self._tops(self._all_products(queries, asked[0][1]), limit) if asked else []

    def with_vector(self, fingerprint: str) -> int:
        space, _ = self._spaces.get(fingerprint, (0, 0))
        total = 0
        for piece in self._pieces:
            lacking = piece.segment.lacking(space, piece.low, piece.high)
            if lacking is None:
                total += piece.kept
            else:
                total += int(np.count_nonzero(~lacking if piece.keep is None else ~lacking & piece.keep))
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

    def _all_products(self, queries: Sequence[vec.Floats], space: int) -> list[tuple[Numbers, Scores]]:
        numbers, scores = [np.zeros(0, np.int64)], [np.zeros((len(queries), 0), np.float32)]
        for piece in self._pieces:
            block = piece.segment.vectors.get(space)
            if block is None:
                continue
            there = block.scales[piece.low : piece.high] > 0
            if piece.keep is not None:
                there &= piece.keep
            numbers.append(np.flatnonzero(there) + piece.start)
            scores.append(vec.products(block, piece.low, piece.high, queries)[:, there])
        found = np.concatenate(numbers)
        return [(found, own) for own in np.concatenate(scores, axis=1)]

    def _near_products(self, query: vec.Floats, space: int, limit: int) -> tuple[Numbers, Scores]:
        """Exact scores of the rows nearest by sign bits, and of more where the first were too few."""
        found = self._distances(query, space)
        usual, most = vec.kept_for(self._size, limit)
        bar = vec.nearest(found, usual, len(query))
        numbers, scores = self._known_products(space, query, np.flatnonzero(found <= bar))
        sure = min(limit, _SURE, len(scores))
        if not sure:
            return numbers, scores
        worst = float(np.partition(scores, len(scores) - sure)[len(scores) - sure])
        wider = min(vec.reach(worst, len(query)), vec.farthest(found, len(query)))
        if wider > bar:
            farther = np.flatnonzero(found <= wider)
            if len(farther) >= most:
                wider = min(wider, vec.nearest(found, most, len(query)))
            far = found[farther]
            farther = farther[(far > bar) & (far <= wider)]
            more, further = self._known_products(space, query, farther)
            numbers, scores = np.concatenate([numbers, more]), np.concatenate([scores, further])
        return numbers, scores

    def _known_products(self, space: int, query: vec.Floats, numbers: Numbers) -> tuple[Numbers, Scores]:
        """Scores without those whose vector was taken away in this moment."""
        scores = self._products(space, query, numbers)
        known = ~np.isnan(scores)
        return (numbers, scores) if known.all() else (numbers[known], scores[known])

    def _distances(self, query: vec.Floats, space: int) -> vec.Distances:
        bits = vec.signs(query[None, :])[:, 0]
        found, farthest = vec.unknown_distances(self._size, len(query))
        for piece in self._pieces:
            block = piece.segment.vectors.get(space)
            if block is None:
                continue
            part = found[piece.start : piece.start + piece.rows]
            vec.distances(block, piece.low, piece.high, bits, part)
            lacking = piece.segment.lacking(space, piece.low, piece.high)
            if lacking is not None:
                part[lacking] = farthest
            if piece.keep is not None:
                part |= self._left_out(piece, farthest, part.dtype)
        return found

    def _left_out(self, piece: Piece, farthest: int, width: np.dtype[Any]) -> vec.Distances:
        """All bits for the rows that are not let through, none for the others; kept for the next question."""
        known = self._beyond.get((id(piece), farthest))
        if known is None:
            assert piece.keep is not None
            known = self._beyond[id(piece), farthest] = np.where(piece.keep, 0, farthest).astype(width)
        return known

    def _products(self, space: int, query: vec.Floats, numbers: Numbers) -> Scores:
        out = np.full(len(numbers), np.nan, np.float32)
        for piece, at, rows in self._located(numbers):
            block = piece.segment.vectors.get(space)
            if block is not None:
                out[at] = vec.products_at(block, rows, query)
        return out

    def _located(self, numbers: Numbers) -> list[Located]:
        """Where in `numbers` the rows of each piece stand; kept for the next call about the same."""
        if self._placed is None or self._placed[0] is not numbers:
            self._placed = numbers, located(self._pieces, self._starts, numbers)
        return self._placed[1]

    def neighbours(self, numbers: Numbers) -> Numbers:
        places = self._gathered(numbers, "place")
        return threads.neighbours(self._pieces, self._located(numbers), places)

    def _top(self, numbers: Numbers, scores: Scores, limit: int) -> Top:
        return self._tops([(numbers, scores)], limit)[0]

    def _tops(self, found: Sequence[tuple[Numbers, Scores] | Top], limit: int) -> list[Top]:
        """The greatest scores first; of equal ones what was written first, wherever merging put it."""
        chosen = [(one.numbers, one.scores) if isinstance(one, Top) else _cut(*one, limit) for one in found]
        nums = self._gathered(np.concatenate([_NO_NUMBERS, *(numbers for numbers, _ in chosen)]), "num")
        tops: list[Top] = []
        for one, (numbers, scores) in zip(found, chosen, strict=True):
            own, nums = nums[: len(numbers)], nums[len(numbers) :]
            order = np.lexsort((own, -scores))[:limit]
            if isinstance(one, Top):
                most = one.maximum
            else:
                most = float(scores[order[0]] if len(order) else one[1].max(initial=0))
            tops.append(Top(numbers[order], scores[order], most))
        return tops

    def _gathered(self, numbers: Numbers, name: str) -> NDArray[Any]:
        out: NDArray[Any] = np.zeros(len(numbers), np.int64)
        for piece, at, rows in self._located(numbers):
            out[at] = _column(piece, name)[rows]
        return out

    def speakers(self) -> list[str]:
        codes: set[int] = set()
        for piece in self._pieces:
            unseen = piece.segment.distinct("speaker", piece.low, piece.high) - codes
            codes |= unseen if piece.keep is None else _occurring(piece, unseen)
        names = self._symbols.names(np.array(sorted(codes), np.int32))
        return [name for name in names if name is not None]

    def speakers_of(self, numbers: Numbers) -> list[str | None]:
        return self._symbols.names(self._gathered(numbers, "speaker"))

    def recent(self, limit: int) -> Numbers:
        found, times = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for piece in self._pieces:
            kept = np.arange(piece.rows) if piece.keep is None else np.flatnonzero(piece.keep)
            found.append(kept + piece.start)
            times.append(piece.segment.columns["at"][kept + piece.low])
        numbers, at = np.concatenate(found), np.concatenate(times)
        return numbers[np.lexsort((numbers, -at))[:limit]]

    def metadata(self, numbers: Numbers) -> Metadata:
        return Metadata(
            at=self._gathered(numbers, "at"),
            curated=self._gathered(numbers, "curated").astype(np.bool_),
            source=self._groups.sources(self._gathered(numbers, "group")),
            thread=(self._gathered(numbers, "place") >> 32).tolist(),
        )

    def whereabouts(self, numbers: Numbers) -> Whereabouts:
        names = self._symbols.names
        return Whereabouts(
            source=self._groups.sources(self._gathered(numbers, "group")),
            topic=names(self._gathered(numbers, "topic")),
            task=names(self._gathered(numbers, "task")),
            session=names(self._gathered(numbers, "session")),
            ordinal=(self._gathered(numbers, "place") & threads.ORDINAL).tolist(),
        )

    def documents(self, numbers: Numbers) -> list[Document | None]:
        nums = self._gathered(numbers, "num").tolist()
        found = self._stored(nums)
        return [found.get(num) for num in nums]


@dataclass(frozen=True, slots=True)
class Gain:
    """What one term adds to a document, by the code of its posting there."""

    table: Scores
    factor: np.float32

    def __call__(self, codes: NDArray[np.uint16]) -> Scores:
        gains: Scores = self.table[codes]
        gains *= self.factor
        return gains

    @property
    def most(self) -> float:
        """What it adds at most, to the shortest document with nothing but this term."""
        return float(self.table[MOST_FREQUENT] * self.factor)


class _Sums:
    """What terms add up to in the documents of a view that are let through, and which have any of them."""

    def __init__(self, size: int, *, lists: bool = True) -> None:
        self.scores = np.zeros(size, np.float32)
        self._lists = lists
        self._met: list[Numbers] = [np.zeros(0, np.int64)]

    def add(self, listed: list[Listed], gain: Gain) -> None:
        for piece, rows, codes in listed:
            if piece.keep is not None:
                let = piece.keep[rows - np.int32(piece.low)]
                rows, codes = rows[let], codes[let]
            numbers = rows + np.int64(piece.start - piece.low)
            before = self.scores[numbers]
            if self._lists:
                self._met.append(numbers[before == 0])
            before += gain(codes)
            self.scores[numbers] = before

    def numbers(self) -> Numbers:
        return np.concatenate(self._met)


def _living(piece: Piece, first: int, last: int) -> tuple[NDArray[np.int32], NDArray[np.uint16]]:
    """One term's rows within the piece and their codes, living rows of the scope only."""
    lists = piece.segment.postings
    first, last = _within_piece(piece, first, last)
    rows, codes = lists.rows[first:last], lists.codes[first:last]
    if piece.live is None:
        return rows, codes
    alive = piece.live[rows - np.int32(piece.low)]
    return rows[alive], codes[alive]


def _within_piece(piece: Piece, first: int, last: int) -> tuple[int, int]:
    """The part of a list of the segment that lies in the piece."""
    if piece.rows == piece.segment.rows:
        return first, last
    bounds = np.array([piece.low, piece.high], np.int32)
    low, high = piece.segment.postings.rows[first:last].searchsorted(bounds).tolist()
    return first + low, first + high


def _living_of(listed: list[Listed]) -> int:
    """How many rows of the scope there are in lists that have others too."""
    return sum(
        len(rows)
        if piece.live is None
        else int(np.count_nonzero(piece.live[rows if not piece.low else rows - np.int32(piece.low)]))
        for piece, rows, _ in listed
    )


def _column(piece: Piece, name: str) -> NDArray[Any]:
    found: NDArray[Any] = getattr(piece.state, name) if name in MOVING else piece.segment.columns[name]
    return found


def _occurring(piece: Piece, codes: frozenset[int] | set[int]) -> set[int]:
    """Which of these speakers have a row that is let through; looks no farther than needed."""
    assert piece.keep is not None
    column, found = piece.segment.columns["speaker"][piece.low : piece.high], set[int]()
    for start in range(0, piece.rows, _LOOK):
        if found >= codes:
            break
        part = slice(start, start + _LOOK)
        found |= codes & set(np.unique(column[part][piece.keep[part]]).tolist())
    return found


def _cut(numbers: Numbers, scores: Scores, limit: int) -> tuple[Numbers, Scores]:
    """The `limit` greatest scores, in no order, with all that equal the least of them."""
    if limit <= 0:
        return _NO_NUMBERS, np.zeros(0, np.float32)
    if len(scores) <= limit:
        return numbers, scores
    bar = np.partition(scores, len(scores) - limit)[len(scores) - limit]
    best = np.flatnonzero(scores >= bar)
    return numbers[best], scores[best]


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
