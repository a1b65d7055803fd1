"""Forgetting what was said: the entry, every copy of its words, and what else quotes it to choose from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import sqlalchemy as sa

from holdfast.board import attachments
from holdfast.board.tables import tasks as task_table
from holdfast.board.tables import topics as topic_table
from holdfast.context import EditableFiles, blobs
from holdfast.context.lossless.tables import summaries as summary_table
from holdfast.keys import parse_key
from holdfast.log import Entry, Tx, audit, changes, entries, entry_model, forget_entry
from holdfast.log.tables import entries as entry_table

if TYPE_CHECKING:
    from holdfast.runtime import Holdfast

LEAST: Final = 16
"""Fewer characters than this are said every day, and quote nobody."""
LEAST_OF_OTHERS: Final = 32
MOST_NEEDLES: Final = 6
MOST_QUOTES: Final = 50
MOST_ENTRIES: Final = 50_000
"""How much of the log is looked through for the same words: at its end, and around where they were said."""
MOST_SUMMARIES: Final = 10_000
PAGE: Final = 5_000
GONE: Final = "[forgotten]"
_AROUND: Final = 100

Kind = Literal["entry", "file", "summary", "digest"]


@dataclass(frozen=True, slots=True)
class Quote:
    """A place that holds words of the entry; `id` is that of the entry, summary or topic, or a path."""

    kind: Kind
    id: str
    text: str
    agent: str | None = None
    line: int | None = None
    goes: bool = False
    """It goes with the entry; what does not is for a person to decide."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    entries: int
    contexts: int
    summaries: int
    digests: int
    versions: int


@dataclass(frozen=True, slots=True)
class Quoted:
    entry: Entry
    quotes: list[Quote]
    cut: bool
    """There is more than was looked through, or more that quotes it than is shown."""


def needles_of(entry: Entry) -> list[str]:
    """What the entry is known by elsewhere: its longest lines, since whoever quotes it may quote any of them.

    Beside the longest, those count that are long enough to be nobody else's; none where all are too short.
    """
    lines = dict.fromkeys(line.strip() for line in entry.content.splitlines())
    longest, *others = sorted(lines, key=len, reverse=True) or [""]
    telling = [line for line in others if len(line) >= LEAST_OF_OTHERS][: MOST_NEEDLES - 1]
    return [line[:400] for line in (longest, *telling)] if len(longest) >= LEAST else []


def files_of(hold: Holdfast, agent_id: str) -> EditableFiles:
    """The files of an agent's workspace that a person edits, and where their earlier texts are kept."""
    return EditableFiles(hold.workspace(agent_id), hold.home.agent_dir(agent_id) / "history")


def quotes(hold: Holdfast, tx: Tx, id_: str) -> Quoted:
    """The entry, and where else its words stand, as far as a bounded look finds them."""
    entry = _there(tx, id_)
    needles = needles_of(entry)
    if not needles:
        return Quoted(entry, [], cut=False)
    spans, cut = _spans(tx, entry)
    looks = (
        *(_in_entries(tx, entry, needles, span) for span in spans),
        _in_digests(tx, needles),
        _in_summaries(tx, needles),
        _in_files(hold, needles),
    )
    cut = cut or tx.conn.execute(sa.select(sa.func.count(summary_table.c.id))).scalar_one() > MOST_SUMMARIES
    # Of each kind one more than is shown, so that it is known when something is left out.
    found = [list(islice(look, MOST_QUOTES + 1)) for look in looks]
    every = [one for some in found for one in some]
    return Quoted(entry, every[:MOST_QUOTES], cut=cut or len(every) > MOST_QUOTES)


def forget(hold: Holdfast, tx: Tx, ids: list[str]) -> Forgotten:
    """Erase entries with their attachments and the contexts, digests and summaries that hold their words.
    Other files are left alone, but not the earlier texts that are kept of them."""
    done = dict.fromkeys(("entries", "contexts", "summaries", "digests", "versions"), 0)
    for id_ in dict.fromkeys(ids):
        entry = _there(tx, id_)
        needles = needles_of(entry)
        for attached in attachments.of_entry(tx, id_):
            _, last = attachments.delete(tx, attached.id)
            hold.agency.channels.files.forget(attached, agent_of(entry, hold), last=last)
        forget_entry(tx, id_)
        audit.note(tx, "entry.forgotten", id_, session=entry.session_key or "")
        done["entries"] += 1
        done["summaries"] += _out_of_summaries(tx, needles)
        done["digests"] += _out_of_digests(tx, needles)
        for needle in needles:
            done["contexts"] += blobs.erase(tx, needle)
            done["versions"] += sum(files_of(hold, one.id).forget(needle) for one in hold.settings.agent_list)
    return Forgotten(**done)


def agent_of(entry: Entry, hold: Holdfast) -> str:
    """Whose workspace has the copy of a file that came with an entry."""
    agent_id = None if entry.session_key is None else parse_key(entry.session_key).agent_id
    return agent_id or hold.settings.default_agent_id


def _there(tx: Tx, id_: str) -> Entry:
    entry = entries.get(tx, id_)
    if entry.deleted_at is not None:
        raise entries.unknown(id_)
    return entry


def _spans(tx: Tx, entry: Entry) -> tuple[list[tuple[int, int]], bool]:
    """The stretches of the log that are looked through, newest first, and whether that is less than all."""
    newest = tx.conn.execute(sa.select(sa.func.max(entry_table.c.position))).scalar_one()
    half = MOST_ENTRIES // 2
    last, near = (max(0, newest - half), newest), (max(0, entry.position - half), entry.position + half)
    if near[1] >= last[0]:
        return [(min(last[0], near[0]), newest)], min(last[0], near[0]) > 0
    return [last, near], True


def _in_entries(tx: Tx, entry: Entry, needles: list[str], span: tuple[int, int]) -> Iterator[Quote]:
    """In pages, so that no statement reads more than a page beyond what is wanted."""
    table, (start, end) = entry_table, span
    columns = (table.c.id, table.c.content, table.c.agent_id)
    for until in range(end, start, -PAGE):
        query = sa.select(*columns).where(
            table.c.position <= until,
            table.c.position > max(start, until - PAGE),
            _any_of(table.c.content, needles),
            table.c.deleted_at.is_(None),
            table.c.id != entry.id,
            *entry_model.within_reach(tx.reader),
        )
        for row in tx.conn.execute(query.order_by(table.c.position.desc())):
            yield Quote("entry", row.id, _around(row.content, needles), row.agent_id)


def _in_digests(tx: Tx, needles: list[str]) -> Iterator[Quote]:
    for table in (topic_table, task_table):
        query = _holding(table, table.c.digest, needles).limit(MOST_QUOTES + 1)
        for row in tx.conn.execute(query):
            yield Quote("digest", row.id, _around(row.digest, needles), goes=True)


def _in_summaries(tx: Tx, needles: list[str]) -> Iterator[Quote]:
    newest = sa.select(summary_table).order_by(summary_table.c.id.desc()).limit(MOST_SUMMARIES).subquery()
    query = sa.select(newest.c.id, newest.c.text).where(_any_of(newest.c.text, needles))
    for row in tx.conn.execute(query.limit(MOST_QUOTES + 1)):
        yield Quote("summary", row.id, _around(row.text, needles), goes=True)


def _in_files(hold: Holdfast, needles: list[str]) -> Iterator[Quote]:
    for agent in hold.settings.agent_list:
        for one in files_of(hold, agent.id).listing():
            for number, line in enumerate(_lines(hold.workspace(agent.id) / one.path), 1):
                if any(needle in line for needle in needles):
                    yield Quote("file", one.path, _around(line, needles), agent.id, number)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []


def _out_of_summaries(tx: Tx, needles: list[str]) -> int:
    """Every one, unlike where one only looks: what is forgotten stands nowhere."""
    table = summary_table
    rows = tx.conn.execute(_holding(table, table.c.text, needles)).all()
    told = re.compile("|".join(map(re.escape, needles)), re.IGNORECASE)
    for row in rows:
        tx.conn.execute(sa.update(table).where(table.c.id == row.id).values(text=told.sub(GONE, row.text)))
    return len(rows)


def _out_of_digests(tx: Tx, needles: list[str]) -> int:
    """A digest is made again from what is left, once something is said about its topic."""
    count = 0
    for table, kind in ((topic_table, "topic"), (task_table, "task")):
        for row in tx.conn.execute(_holding(table, table.c.digest, needles)).all():
            tx.conn.execute(sa.update(table).where(table.c.id == row.id).values(digest=None))
            changes.emit(tx, f"{kind}.upserted", row.id)
            count += 1
    return count


def _holding(table: sa.Table, column: Any, needles: list[str]) -> Any:
    return sa.select(table.c.id, column).where(_any_of(column, needles))


def _any_of(column: Any, needles: list[str]) -> Any:
    return sa.or_(*(column.contains(needle, autoescape=True) for needle in needles))


def _around(text: str, needles: list[str]) -> str:
    """The words with a little of what stands around them, on one line."""
    # The store may find words whatever their case.
    at, long = next(((text.find(one), len(one)) for one in needles if one in text), (0, 0))
    start, end = max(0, at - _AROUND), min(len(text), at + long + _AROUND)
    piece = re.sub(r"\s+", " ", text[start:end]).strip()
    return f"{'…' if start else ''}{piece}{'…' if end < len(text) else ''}"
