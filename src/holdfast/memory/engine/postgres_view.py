"""Searching one moment of the PostgreSQL index within one filter.

Every answer is exact: the filter stands in the query, and no approximate index is there for the
planner to choose. A view keeps one read-only transaction for as long as it lives.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import InvalidInput
from holdfast.memory.documents import Document, Filter
from holdfast.memory.engine import postgres_rows as rows
from holdfast.memory.engine.postgres_connections import Connections, told
from holdfast.memory.engine.postings import K1, B, idf
from holdfast.memory.engine.protocol import Metadata, Numbers, Scores, Top, Whereabouts

_BM25 = """(select sum(w.factor / (1 + (%(flat)s + %(steep)s * d.length)
        / d.freqs[array_position(d.terms, w.term)]))
    from unnest(%(terms)s::bigint[], %(factors)s::float8[]) as w (term, factor))"""
_COSINE = "-(v.codes <#> %(query)s::halfvec) * v.scale"


class PostgresView:
    """See `View`. Its numbers are those of the documents themselves."""

    def __init__(self, connections: Connections, wanted: Filter) -> None:
        self._connection = connections.snapshot()
        weakref.finalize(self, connections.give_back, self._connection).atexit = False
        condition, values = rows.coarse(wanted)
        asked = f"""select code, population, total_length, (select count(*) from groups)
            from groups where {condition}"""
        groups = self._all(asked, values)
        self._groups = [code for code, *_ in groups]
        self._population = sum(population for _, population, _, _ in groups)
        self._length = sum(length for _, _, length, _ in groups)
        everywhere = bool(groups) and len(groups) == groups[0][3]
        self._where, self._values = rows.fine(wanted, None if everywhere else self._groups)

    def _all(self, query: str, values: Any) -> list[Any]:
        with told():
            found: list[Any] = self._connection.execute(query, values).fetchall()
            return found

    @cached_property
    def count(self) -> int:
        found: int = self._all(f"select count(*) from docs d where {self._where}", self._values)[0][0]
        return found

    def with_vector(self, fingerprint: str) -> int:
        chosen = f"select d.num from docs d where {self._where}"
        counted = f"""select count(*) from ({chosen}) c join vectors v on v.num = c.num
            where v.space = (select code from spaces where fingerprint = %(fingerprint)s)"""
        found: int = self._all(counted, {**self._values, "fingerprint": fingerprint})[0][0]
        return found

    def lexical(self, terms: Sequence[str], limit: int) -> Top:
        """The best by BM25, counted over the scope as if it were the whole index."""
        wanted = self._weighed(terms)
        if wanted is None:
            return _top([], limit)
        query = f"""select d.num, {_BM25} as score from docs d
            where d.terms && %(terms)s::bigint[] and {self._where}
            order by score desc, d.num limit %(limit)s"""
        return _top(self._all(query, {**self._values, **wanted, "limit": max(limit, 1)}), limit)

    def lexical_each(self, asked: Sequence[Sequence[str]], limit: int) -> list[Top]:
        return [self.lexical(terms, limit) for terms in asked]

    def dense_each(self, fingerprint: str, vectors: Sequence[NDArray[Any]], limit: int) -> list[Top]:
        return [self.dense(fingerprint, vector, limit) for vector in vectors]

    def lexical_scores(self, terms: Sequence[str], numbers: Numbers) -> Scores:
        wanted = self._weighed(terms)
        if wanted is None:
            return np.zeros(len(numbers), np.float32)
        query = f"""select d.num, {_BM25} from docs d
            where d.num = any(%(nums)s::bigint[]) and d.terms && %(terms)s::bigint[]"""
        found = dict(self._all(query, {**wanted, "nums": rows.listed(numbers.tolist())}))
        return np.array([found.get(number, 0.0) for number in numbers.tolist()], np.float32)

    def holding(self, terms: Sequence[str], numbers: Numbers) -> NDArray[np.bool_]:
        out = np.zeros((len(terms), len(numbers)), np.bool_)
        query = """select d.num, array(select w.place from unnest(%(terms)s::bigint[]) with ordinality
                as w (term, place) where w.term = any(d.terms))
            from docs d where d.num = any(%(nums)s::bigint[]) and d.terms && %(terms)s::bigint[]"""
        wanted = {"terms": rows.listed(rows.signed_keys(terms)), "nums": rows.listed(numbers.tolist())}
        at = {number: column for column, number in enumerate(numbers.tolist())}
        for number, held in self._all(query, wanted) if len(terms) and len(numbers) else ():
            out[[place - 1 for place in held], at[number]] = True
        return out

    def frequencies(self, terms: Sequence[str]) -> list[int]:
        keys = rows.signed_keys(terms)
        having = self._having(keys)
        return [having.get(key, 0) for key in keys]

    def _having(self, keys: Sequence[int]) -> dict[int, int]:
        """How many documents of the scope's groups have each of these terms."""
        if not keys or not self._groups:
            return {}
        counted = """select term, sum(documents)::bigint from counts
            where term = any(%s::bigint[]) and grp = any(%s::int[]) group by term"""
        return dict(self._all(counted, (rows.listed(keys), rows.listed(self._groups))))

    def _weighed(self, terms: Sequence[str]) -> dict[str, Any] | None:
        """The terms that stand in the scope at all, with what each tells in it."""
        keys = rows.signed_keys(dict.fromkeys(terms))
        having = self._having(keys)
        known = [key for key in keys if having.get(key)]
        if not known:
            return None
        average = max(self._length / self._population, 1.0)
        return {
            "terms": rows.listed(known),
            "factors": [(K1 + 1) * idf(self._population, having[key]) for key in known],
            "flat": K1 * (1 - B),
            "steep": K1 * B / average,
        }

    def dense(self, fingerprint: str, vector: NDArray[Any], limit: int) -> Top:
        """The nearest by cosine; the filter's documents first, then every one of their vectors."""
        asked = self._asked(fingerprint, vector)
        if asked is None:
            return _top([], limit)
        query = f"""with chosen as materialized (select d.num from docs d where {self._where})
            select v.num, {_COSINE} as score from chosen
            join vectors v on v.space = %(space)s and v.num = chosen.num
            order by score desc, v.num limit %(limit)s"""
        return _top(self._all(query, {**self._values, **asked, "limit": max(limit, 1)}), limit)

    def dense_scores(self, fingerprint: str, vector: NDArray[Any], numbers: Numbers) -> Scores:
        asked = self._asked(fingerprint, vector)
        if asked is None:
            return np.full(len(numbers), np.nan, np.float32)
        query = f"""select v.num, {_COSINE} from vectors v
            where v.space = %(space)s and v.num = any(%(nums)s::bigint[])"""
        found = dict(self._all(query, {**asked, "nums": rows.listed(numbers.tolist())}))
        return np.array([found.get(number, np.nan) for number in numbers.tolist()], np.float32)

    def _asked(self, fingerprint: str, vector: NDArray[Any]) -> dict[str, Any] | None:
        """The vector space and the question at unit length; `None` where nothing can be compared."""
        query = np.asarray(vector, np.float32).ravel()
        known = self._all("select code, dims from spaces where fingerprint = %s", (fingerprint,))
        if not known or not self._population:
            return None
        space, dims = known[0]
        if len(query) != dims:
            raise InvalidInput(
                f"a vector of {len(query)} numbers in a space of {dims}",
                hint="Embed the question with the model that the fingerprint names.",
            )
        norm = float(np.linalg.norm(query))
        return {"space": space, "query": rows.literal(query / np.float32(norm))} if norm else None

    def neighbours(self, numbers: Numbers) -> Numbers:
        """Read off the order of each thread; `+ 0` keeps the planner from reading the scope each time."""
        beside = "select d.num from docs d where d.thread = own.thread and"
        where = self._where.replace("d.grp =", "d.grp + 0 =")
        query = f"""select own.num,
            ({beside} d.ordinal < own.ordinal and {where} order by d.ordinal desc, d.num desc limit 1),
            ({beside} d.ordinal > own.ordinal and {where} order by d.ordinal, d.num limit 1)
            from docs own where own.num = any(%(nums)s::bigint[]) and own.thread is not null"""
        found = {
            number: (-1 if before is None else before, -1 if after is None else after)
            for number, before, after in self._all(
                query, {**self._values, "nums": rows.listed(numbers.tolist())}
            )
        }
        pairs = [found.get(number, (-1, -1)) for number in numbers.tolist()]
        return np.array(pairs, np.int64).reshape(len(pairs), 2)

    def speakers(self) -> list[str]:
        query = f"select distinct d.speaker from docs d where d.speaker is not null and {self._where}"
        return [name for (name,) in self._all(query, self._values)]

    def recent(self, limit: int) -> Numbers:
        query = f"select d.num from docs d where {self._where} order by d.at desc, d.num limit %(limit)s"
        found = self._all(query, {**self._values, "limit": max(limit, 0)})
        return np.array([number for (number,) in found], np.int64)

    def speakers_of(self, numbers: Numbers) -> list[str | None]:
        query = "select d.num, d.speaker from docs d where d.num = any(%s::bigint[])"
        found = dict(self._all(query, (rows.listed(numbers.tolist()),)))
        return [found[number] for number in numbers.tolist()]

    def metadata(self, numbers: Numbers) -> Metadata:
        query = """select d.num, d.at, d.curated, g.source, d.thread
            from docs d join groups g on g.code = d.grp where d.num = any(%s::bigint[])"""
        found = {number: columns for number, *columns in self._all(query, (rows.listed(numbers.tolist()),))}
        columns = [found[number] for number in numbers.tolist()]
        at, curated, source, thread = zip(*columns, strict=True) if columns else ((), (), (), ())
        return Metadata(np.array(at, np.int64), np.array(curated, np.bool_), list(source), thread)

    def whereabouts(self, numbers: Numbers) -> Whereabouts:
        query = """select d.num, g.source, d.topic, d.task, d.session, d.ordinal
            from docs d join groups g on g.code = d.grp where d.num = any(%s::bigint[])"""
        found = {number: columns for number, *columns in self._all(query, (rows.listed(numbers.tolist()),))}
        columns = [list(column) for column in zip(*(found[n] for n in numbers.tolist()), strict=True)]
        return Whereabouts(*columns) if columns else Whereabouts([], [], [], [], [])

    def documents(self, numbers: Numbers) -> list[Document | None]:
        query = f"{rows.SELECT} where d.num = any(%s::bigint[])"
        found = {row[0]: rows.document(row[1:]) for row in self._all(query, (rows.listed(numbers.tolist()),))}
        return [found.get(number) for number in numbers.tolist()]


def _top(found: Sequence[tuple[int, float]], limit: int) -> Top:
    chosen = found[: max(limit, 0)]
    scores = np.array([score for _, score in chosen], np.float32)
    maximum = float(np.float32(found[0][1])) if found else 0.0
    return Top(np.array([number for number, _ in chosen], np.int64), scores, maximum)
