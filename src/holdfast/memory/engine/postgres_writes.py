"""What a write of the PostgreSQL index consists of; the caller holds the writer's transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.errors import InvalidInput
from holdfast.memory.documents import Document
from holdfast.memory.engine import postgres_rows as rows
from holdfast.memory.engine.postgres_rows import Words
from holdfast.memory.engine.symbols import Group
from holdfast.memory.engine.vectors import Quantised


class Tally:
    """Documents per group and per term in it, added and taken away, then saved all at once."""

    def __init__(self) -> None:
        self._terms: Counter[tuple[int, int]] = Counter()
        self._documents: Counter[int] = Counter()
        self._lengths: Counter[int] = Counter()

    def add(self, group: int, keys: Iterable[int], length: int, by: int = 1) -> None:
        for key in keys:
            self._terms[key, group] += by
        self._documents[group] += by
        self._lengths[group] += by * length

    def save(self, connection: Any) -> None:
        changed = {place: by for place, by in self._terms.items() if by}
        terms, groups = rows.listed(t for t, _ in changed), rows.listed(g for _, g in changed)
        connection.execute(
            """insert into counts select * from unnest(%s::bigint[], %s::int[], %s::bigint[])
            on conflict (term, grp) do update set documents = counts.documents + excluded.documents""",
            (terms, groups, rows.listed(changed.values())),
        )
        if min(changed.values(), default=0) < 0:
            connection.execute(
                """delete from counts c using unnest(%s::bigint[], %s::int[]) as t (term, grp)
                where c.term = t.term and c.grp = t.grp and c.documents = 0""",
                (terms, groups),
            )
        connection.cursor().executemany(
            "update groups set population = population + %s, total_length = total_length + %s"
            " where code = %s",
            [(by, self._lengths[group], group) for group, by in self._documents.items()],
        )


def cleaned(ids: Iterable[str]) -> list[str]:
    return [rows.clean(id_) for id_ in ids]


def nums_of(connection: Any, ids: Sequence[str]) -> dict[str, int]:
    return dict(connection.execute("select id, num from docs where id = any(%s)", (cleaned(ids),)).fetchall())


def next_nums(connection: Any, wanted: int) -> list[int]:
    found = connection.execute("select nextval('nums') from generate_series(1, %s)", (wanted,))
    return [num for (num,) in found]


def groups_of(connection: Any, wanted: Sequence[Group]) -> list[int]:
    """The code of each group, made if it is new."""
    keys = {group: rows.clean(rows.group_key(group)) for group in wanted}
    find = "select key, code from groups where key = any(%s)"
    known = dict(connection.execute(find, (list(keys.values()),)).fetchall())
    for group, key in keys.items():
        if key not in known:
            named = (group.audience, group.agent, group.collection)
            names = [None if name is None else rows.clean(name) for name in named]
            made = connection.execute(
                "insert into groups (key, audience, agent, collection, source, spaces)"
                " values (%s, %s, %s, %s, %s, %s) returning code",
                (key, *names, group.source, cleaned(sorted(group.spaces))),
            )
            known[key] = made.fetchone()[0]
    return [known[keys[group]] for group in wanted]


def remove(connection: Any, ids: Sequence[str], tally: Tally) -> int:
    gone = connection.execute(
        "delete from docs where id = any(%s) returning num, grp, terms, length", (cleaned(ids),)
    ).fetchall()
    for _, group, keys, length in gone:
        tally.add(group, keys, length, by=-1)
    if gone:
        connection.execute(
            "delete from vectors where space in (select code from spaces) and num = any(%s::bigint[])",
            (rows.listed(num for num, *_ in gone),),
        )
    return len(gone)


def move(connection: Any, documents: Sequence[Document]) -> int:
    """Let documents lie where these do, and count their terms there."""
    to = {rows.clean(document.id): document.lies for document in documents}
    found = connection.execute(
        """select d.num, d.id, d.grp, g.agent, g.collection, g.source
        from docs d join groups g on g.code = d.grp where d.id = any(%s)""",
        (list(to),),
    ).fetchall()
    places = [
        Group(audience=to[id_].audience, agent=agent, collection=kept, source=source, spaces=to[id_].spaces)
        for _, id_, _, agent, kept, source in found
    ]
    groups = groups_of(connection, places)
    elsewhere = {row[0]: (row[2], new) for row, new in zip(found, groups, strict=True) if row[2] != new}
    _count_elsewhere(connection, elsewhere)
    named = [[_cleaned(to[row[1]].topic) for row in found], [_cleaned(to[row[1]].task) for row in found]]
    connection.execute(
        """update docs d set grp = m.grp, topic = m.topic, task = m.task
        from unnest(%s::bigint[], %s::int[], %s::text[], %s::text[]) as m (num, grp, topic, task)
        where d.num = m.num and (d.grp, d.topic, d.task) is distinct from (m.grp, m.topic, m.task)""",
        (rows.listed(row[0] for row in found), rows.listed(groups), *named),
    )
    return len(found)


def _count_elsewhere(connection: Any, moves: Mapping[int, tuple[int, int]]) -> None:
    """Take the terms of documents, by number, from the count of one group to that of another."""
    if not moves:
        return
    tally = Tally()
    having = connection.execute(
        "select num, terms, length from docs where num = any(%s::bigint[])", (rows.listed(moves),)
    )
    for num, keys, length in having:
        old, new = moves[num]
        tally.add(old, keys, length, by=-1)
        tally.add(new, keys, length)
    tally.save(connection)


def _cleaned(name: str | None) -> str | None:
    return None if name is None else rows.clean(name)


def rewrite(connection: Any, num: int, words: Words) -> None:
    connection.execute(
        "update docs set terms = %s::bigint[], freqs = %s::smallint[], length = %s where num = %s",
        (rows.listed(words.keys), rows.listed(words.frequencies), words.length, num),
    )


def save_vectors(connection: Any, fingerprint: str, nums: Sequence[int], block: Quantised) -> None:
    """Replace the vectors of some documents; a zero vector takes away the one that was there."""
    space = _space(connection, fingerprint, block.dims)
    connection.execute(
        "delete from vectors where space = %s and num = any(%s::bigint[])", (space, rows.listed(nums))
    )
    with connection.cursor().copy("copy vectors (space, num, scale, codes) from stdin") as copy:
        for num, scale, codes in zip(nums, block.scales.tolist(), block.codes, strict=True):
            if scale > 0:
                copy.write_row((space, num, scale, rows.literal(codes)))


def _space(connection: Any, fingerprint: str, dims: int) -> int:
    connection.execute(
        "insert into spaces (fingerprint, dims) values (%s, %s) on conflict do nothing", (fingerprint, dims)
    )
    find = "select code, dims from spaces where fingerprint = %s"
    space, known = connection.execute(find, (fingerprint,)).fetchone()
    if known != dims:
        raise InvalidInput(
            f"vectors of {dims} numbers in a space of {known}",
            hint="A fingerprint must name the model and its width.",
        )
    return int(space)


def advance(connection: Any, position: int) -> None:
    connection.execute(
        "update meta set value = %s where key = 'position' and value::bigint < %s", (str(position), position)
    )
