"""Forgetting what was said: the entry, every copy of its words, and what else quotes it to choose from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import sqlalchemy as sa

from holdfast.board import attachments, tasks, topics
from holdfast.board.tables import tasks as task_table
from holdfast.board.tables import topics as topic_table
from holdfast.context import EditableFiles, blobs
from holdfast.context.lossless.tables import summaries as summary_table
from holdfast.log import Entry, Tx, audit, changes, entries, entry_model, forget_entry
from holdfast.log.tables import entries as entry_table

if TYPE_CHECKING:
    from holdfast.runtime.hold import Holdfast

LEAST: Final = 16
"""Fewer characters than this are said every day, and quote nobody."""
LEAST_OF_OTHERS: Final = 32
MOST_NEEDLES: Final = 6
MOST_QUOTES: Final = 50
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


def quotes(hold: Holdfast, tx: Tx, id_: str) -> tuple[Entry, list[Quote]]:
    """The entry, and where else its words stand."""
    entry = _there(tx, id_)
    found: dict[tuple[str, str, str | None, int | None], Quote] = {}
    for needle in needles_of(entry):
        own = (*_in_entries(tx, entry, needle), *_in_digests(tx, needle), *_in_summaries(tx, needle))
        for one in (*own, *_in_files(hold, needle)):
            found.setdefault((one.kind, one.id, one.agent, one.line), one)
    return entry, list(found.values())[:MOST_QUOTES]


def forget(hold: Holdfast, tx: Tx, ids: list[str]) -> Forgotten:
    """Erase entries with the contexts, digests and summaries that hold their words. Files are left alone,
    but not the earlier texts that are kept of them."""
    done = dict.fromkeys(("entries", "contexts", "summaries", "digests", "versions"), 0)
    for id_ in dict.fromkeys(ids):
        entry = _there(tx, id_)
        needles = needles_of(entry)
        for attached in attachments.of_entry(tx, id_):
            attachments.delete(tx, attached.id)
        forget_entry(tx, id_)
        audit.note(tx, "entry.forgotten", id_, session=entry.session_key or "")
        done["entries"] += 1
        for needle in needles:
            done["contexts"] += blobs.erase(tx, needle)
            done["summaries"] += _out_of_summaries(tx, needle)
            done["digests"] += _out_of_digests(tx, needle)
            done["versions"] += sum(files_of(hold, one.id).forget(needle) for one in hold.settings.agent_list)
    return Forgotten(**done)


def _there(tx: Tx, id_: str) -> Entry:
    entry = entries.get(tx, id_)
    if entry.deleted_at is not None:
        raise entries.unknown(id_)
    return entry


def _in_entries(tx: Tx, entry: Entry, needle: str) -> Iterator[Quote]:
    table = entry_table
    query = sa.select(table.c.id, table.c.content, table.c.agent_id).where(
        table.c.content.contains(needle, autoescape=True),
        table.c.deleted_at.is_(None),
        table.c.id != entry.id,
        *entry_model.within_reach(tx.reader),
    )
    for row in tx.conn.execute(query.order_by(table.c.position.desc()).limit(MOST_QUOTES)):
        yield Quote("entry", row.id, _around(row.content, needle), row.agent_id)


def _in_digests(tx: Tx, needle: str) -> Iterator[Quote]:
    for table in (topic_table, task_table):
        for row in tx.conn.execute(_holding(table, table.c.digest, needle)):
            yield Quote("digest", row.id, _around(row.digest, needle), goes=True)


def _in_summaries(tx: Tx, needle: str) -> Iterator[Quote]:
    for row in tx.conn.execute(_holding(summary_table, summary_table.c.text, needle)):
        yield Quote("summary", row.id, _around(row.text, needle), goes=True)


def _in_files(hold: Holdfast, needle: str) -> Iterator[Quote]:
    for agent in hold.settings.agent_list:
        files = files_of(hold, agent.id)
        for one in files.listing():
            for number, line in enumerate(_lines(hold.workspace(agent.id) / one.path), 1):
                if needle in line:
                    yield Quote("file", one.path, _around(line, needle), agent.id, number)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []


def _out_of_summaries(tx: Tx, needle: str) -> int:
    table = summary_table
    rows = tx.conn.execute(_holding(table, table.c.text, needle)).all()
    for row in rows:
        values = {"text": row.text.replace(needle, GONE)}
        tx.conn.execute(sa.update(table).where(table.c.id == row.id).values(**values))
    return len(rows)


def _out_of_digests(tx: Tx, needle: str) -> int:
    """A digest is made again from what is left, once something is said about its topic."""
    count = 0
    for table, room in ((topic_table, topics), (task_table, tasks)):
        for row in tx.conn.execute(_holding(table, table.c.digest, needle)).all():
            tx.conn.execute(sa.update(table).where(table.c.id == row.id).values(digest=None))
            changes.emit(tx, f"{'topic' if room is topics else 'task'}.upserted", row.id)
            count += 1
    return count


def _holding(table: sa.Table, column: Any, needle: str) -> Any:
    return sa.select(table).where(column.contains(needle, autoescape=True)).limit(MOST_QUOTES)


def _around(text: str, needle: str) -> str:
    """The words with a little of what stands around them, on one line."""
    at = text.find(needle)
    start, end = max(0, at - _AROUND), min(len(text), at + len(needle) + _AROUND)
    piece = re.sub(r"\s+", " ", text[start:end]).strip()
    return f"{'…' if start else ''}{piece}{'…' if end < len(text) else ''}"
