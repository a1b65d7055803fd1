"""What hosts bring that run their own turns: written to the log once, and told to the engine like any
other turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from holdfast.context import engine_records as records
from holdfast.context.deliveries import Deliverer
from holdfast.context.engine import CommitResult, IngestResult
from holdfast.context.engine_records import Kind
from holdfast.context.host import HostedEngine
from holdfast.context.messages import Message
from holdfast.context.transcript import draft_of
from holdfast.log import (
    SYSTEM,
    Entry,
    EntryDraft,
    EntryFilter,
    EntryType,
    Session,
    Store,
    Threads,
    Tx,
    entries,
    sessions,
)
from holdfast.log.entry_model import Appended

_TOOL: Final = "tool"
_LOGGED_PAGE: Final = 500
Prepare = Callable[[Tx, EntryDraft], EntryDraft]
"""What the board makes of an entry before it is written: cleaned, placed, put up for sorting."""


def as_it_is(_: Tx, draft: EntryDraft) -> EntryDraft:
    return draft


class Intake:
    """Takes in what other hosts send. A repeat under the same key changes nothing; one that the engine
    failed to take in is told to it again."""

    def __init__(
        self,
        store: Store,
        threads: Threads,
        deliverer: Deliverer,
        hosted: Callable[[str | None], HostedEngine],
        prepare: Prepare = as_it_is,
    ) -> None:
        self._store = store
        self._threads = threads
        self._deliverer = deliverer
        self._hosted = hosted
        self._prepare = prepare

    async def bootstrap(self, session: Session, messages: Sequence[Message] = ()) -> None:
        """The engine meets a session, once; history that came along is written to the log first, once."""
        await self._threads(self._write, session, messages, f"bootstrap:{session.id}")
        await self._deliverer.meet(self._hosted(session.agent_id), session)

    async def ingest(
        self, session: Session, message: Message, *, key: str | None = None, is_heartbeat: bool = False
    ) -> IngestResult:
        return await self._ingest(session, "message", [message], key, is_heartbeat)

    async def ingest_batch(
        self,
        session: Session,
        messages: Sequence[Message],
        *,
        key: str | None = None,
        is_heartbeat: bool = False,
    ) -> IngestResult:
        return await self._ingest(session, "batch", messages, key, is_heartbeat)

    async def _ingest(
        self,
        session: Session,
        kind: Kind,
        messages: Sequence[Message],
        key: str | None,
        is_heartbeat: bool,
    ) -> IngestResult:
        named = None if key is None else f"ingest:{session.id}:{key}"
        written, waiting = await self._taken(session, kind, messages, named, is_heartbeat)
        duplicate = bool(messages) and not written and not waiting
        return IngestResult(written or (len(messages) if waiting else 0), duplicate=duplicate)

    async def commit_turn(
        self, session: Session, key: str, messages: Sequence[Message], *, is_heartbeat: bool = False
    ) -> CommitResult:
        """What a host's turn added, written once whatever is repeated. One that the engine has not taken
        in is no duplicate: the repeat tells it again."""
        named = f"commit:{session.id}:{key}"
        written, waiting = await self._taken(session, "batch", messages, named, is_heartbeat, turn_key=key)
        return CommitResult("duplicate" if messages and not written and not waiting else "committed")

    async def _taken(
        self,
        session: Session,
        kind: Kind,
        messages: Sequence[Message],
        key: str | None,
        is_heartbeat: bool,
        turn_key: str | None = None,
    ) -> tuple[int, bool]:
        """Entries for messages, and the engine told of them: how many were new, and whether they had
        waited."""
        engine = self._hosted(session.agent_id)
        await self._deliverer.meet(engine, session)
        told = partial(self._post_host, engine, session, kind, is_heartbeat, turn_key)
        written, waiting = await self._threads(self._write, session, messages, key, told)
        await self._deliverer.deliver(engine, session, urgent=waiting)
        return written, waiting

    def _post_host(
        self,
        engine: HostedEngine,
        session: Session,
        kind: Kind,
        is_heartbeat: bool,
        turn_key: str | None,
        tx: Tx,
        done: Sequence[Appended],
    ) -> bool:
        """Have the engine told of a host's messages, once; True if it is owed them from before."""
        if not done or not engine.hears:
            return False
        key = turn_key or done[0].entry.idempotency_key or str(done[0].entry.id)
        if not any(one.created for one in done):
            return records.find(tx, engine.id, session.id, key) is not None
        body = {"entries": [one.entry.id for one in done], "isHeartbeat": is_heartbeat, "host": turn_key}
        number = sessions.get(tx, session.id).turn_count
        records.post(tx, engine.id, session.id, key=key, kind=kind, number=number, body=body)
        return False

    def _write(
        self,
        session: Session,
        messages: Sequence[Message],
        key: str | None,
        told: Callable[[Tx, Sequence[Appended]], bool] = lambda tx, done: False,
    ) -> tuple[int, bool]:
        """Entries for messages; with a key each is written once. Gives how many were new, and what `told`
        says of them in the same transaction."""
        with self._store.write(SYSTEM) as tx:
            logged = _Logged(tx, session)
            drafts = [
                self._prepared(
                    tx, logged, _draft(session, message, None if key is None else f"{key}:{index}")
                )
                for index, message in enumerate(messages)
                if message.kind in ("user", "assistant", "tool_result")
            ]
            done = entries.append_many(tx, drafts)
            return sum(one.created for one in done), told(tx, done)

    def _prepared(self, tx: Tx, logged: _Logged, draft: EntryDraft) -> EntryDraft:
        """What the board makes of it; words that a logger wrote before have the place that they had."""
        made = self._prepare(tx, draft)
        place = logged.replaced_by(made)
        if place is None or place.topic_id is None:
            return made
        return self._prepare(tx, replace(draft, topic_id=place.topic_id, task_id=place.task_id))

    def host_keys(self, session: Session, entry_ids: Sequence[str]) -> dict[str, str]:
        """Entry id → the name that the host gave its message, of those that have one."""
        with self._store.read(SYSTEM) as tx:
            found = entries.get_many(tx, entry_ids)
        prefix = _host_key(session, "")
        keys = {e.id: e.idempotency_key or "" for e in found}
        return {id_: key.removeprefix(prefix) for id_, key in keys.items() if key.startswith(prefix)}


class _Logged:
    """What a host's logger wrote under a session's key before the session was met here.

    Its engine brings the same again, whole and in order: the logger's lines go, so that each is there once.
    """

    def __init__(self, tx: Tx, session: Session) -> None:
        self._tx = tx
        self._session = session
        self._found: dict[tuple[str, str], list[Entry]] | None = None

    def replaced_by(self, draft: EntryDraft) -> Entry | None:
        """Take out what these words were logged as, or the call and the outcome of this tool."""
        if draft.created_at is None or draft.created_at >= self._session.created_at:
            return None
        if self._found is None:
            self._found = self._read()
        mark = _mark(draft)
        gone = self._found.get(mark, [])[: 2 if mark[0] == _TOOL else 1]
        for entry in gone:
            self._found[mark].remove(entry)
            entries.delete(self._tx, entry.id)
        return gone[0] if gone else None

    def _read(self) -> dict[tuple[str, str], list[Entry]]:
        found: dict[tuple[str, str], list[Entry]] = {}
        where, cursor = EntryFilter(session_key=self._session.key), None
        while True:
            page = entries.listing(self._tx, where, limit=_LOGGED_PAGE, cursor=cursor)
            for entry in page.entries:
                if entry.session_id is None and entry.created_at < self._session.created_at:
                    found.setdefault(_mark(entry), []).insert(0, entry)
            cursor = page.next
            if cursor is None:
                return found


def _mark(one: Entry | EntryDraft) -> tuple[str, str]:
    """Who said what, or which tool was used: what two accounts of one thing have in common."""
    if one.type is EntryType.ACTION:
        return _TOOL, str((one.source or {}).get("toolName"))
    return "user" if one.agent_id == "user" else str(one.type), " ".join(one.content.split())


def _draft(session: Session, message: Message, key: str | None) -> EntryDraft:
    name = message.named
    return replace(
        draft_of(message),
        audience=session.audience,
        session_key=session.key,
        session_id=session.id,
        agent_id="user" if message.kind == "user" else session.agent_id,
        idempotency_key=key if name.key is None else _host_key(session, name.key),
        created_at=name.at,
    )


def _host_key(session: Session, key: str) -> str:
    return f"host:{session.key}:{key}"
