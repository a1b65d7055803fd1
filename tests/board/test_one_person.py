"""Who is alone in their home loses nothing by audiences: what they find and are told is what there is."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.board import EVERYTHING, ingest, pending, spaces, tasks, topics
from holdfast.board.classifier import Classifier
from holdfast.board.context import ContextAsk
from holdfast.board.graph import MapAsk
from holdfast.board.placing import Batch
from holdfast.board.search import SearchAsk
from holdfast.board.visibility import Sight
from holdfast.clock import ManualClock
from holdfast.config.board import BoardConfig
from holdfast.log import OWNER, SYSTEM, EntryDraft, EntryFilter, Reader, agenda, entries
from holdfast.runtime import Holdfast, open_home

KEYS = ("agent:main:main", "agent:main:terminal:dm:me", "agent:coder:discord:dm:42")
TALK = (
    ("The oak fence post by the quokka enclosure is rotten, replace it with concrete", "Concrete it is."),
    ("Book a dentist appointment for Anna, her molar aches", "The dentist has Tuesday at nine."),
    ("The router in the attic drops the VPN tunnel every night", "The tunnel's keepalive is off."),
    ("How deep must the concrete for the fence post go?", "Eighty centimetres for the fence."),
    ("ok", "Done."),
)
QUESTIONS = ("fence post concrete", "when is Anna's dentist appointment?", "VPN tunnel", "continue")


def live(hold: Holdfast, clock: ManualClock) -> None:
    """A history of one person: chats of all kinds, board chats, notes of agents, and all of it sorted."""
    options = BoardConfig()
    with hold.store.write(OWNER) as tx:
        spaces.upsert(tx, "Garden")
        garden = topics.upsert(tx, "Pond", space_id="space-garden").topic
        task = tasks.upsert(tx, "Line the pond", topic_id=garden.id).task
    board = (f"clawboard:topic:{garden.id}", f"clawboard:task:{garden.id}:{task.id}")
    for key in (*KEYS, *board):
        for asked, answered in TALK:
            for text, role in ((asked, "user"), (answered, "assistant")):
                clock.advance(seconds=10)
                draft = EntryDraft(content=text, role=role, session_key=key, agent_id=_writer(key, role))
                with hold.store.write(OWNER) as tx:
                    entries.append(tx, ingest.prepare(tx, draft, options))
        _sort(hold, clock, options)


def _writer(key: str, role: str) -> str:
    return "user" if role == "user" else "coder" if "coder" in key else "main"


def _sort(hold: Holdfast, clock: ManualClock, options: BoardConfig) -> None:
    async def work() -> None:
        runner = agenda.Runner(hold.store, hold.threads)
        recall: Any = hold.board.search._recall
        room = Classifier(hold.store, hold.threads, lambda: options, candidates=recall)
        runner.register(pending.KIND, room.kind())
        await runner.drain()

    clock.advance(seconds=20)
    asyncio.run(work())


def told(hold: Holdfast, reader: Reader) -> list[Any]:
    found: list[Any] = []
    for key in (None, *KEYS):
        sight = Sight(reader=reader, session_key=key)
        for q in QUESTIONS:
            context = hold.board.continuity.build(ContextAsk(q=q, sight=sight, mode="full"))
            assert not context.late
            search = hold.board.search.run(SearchAsk(q=q, sight=sight))
            found.append(
                (
                    context.block,
                    [
                        [(one.item.id, one.score) for one in part]
                        for part in (search.topics, search.tasks, search.logs, search.notes)
                    ],
                )
            )
        found.append(hold.board.map.build(MapAsk(sight=sight)))
    return found


def placed(hold: Holdfast) -> list[tuple[Any, ...]]:
    """Where each entry went, by names that are the same in another home."""
    with hold.store.read(OWNER) as tx:
        names = {one.id: (one.name, one.space_id) for one in topics.listing(tx, EVERYTHING, limit=500).topics}
        page = entries.listing(tx, EntryFilter(), limit=1000)
        return [(e.content, e.status, e.code, names.get(e.topic_id or ""), e.summary) for e in page.entries]


def test_the_owner_is_told_and_finds_what_there_is(
    store_url: str, tmp_path: Path, clock: ManualClock
) -> None:
    with open_home(tmp_path / "home", store_url=store_url, clock=clock) as hold:
        live(hold, clock)
        with hold.store.read(OWNER) as tx:
            page = entries.listing(tx, EntryFilter(), limit=1000).entries
            known = topics.listing(tx, EVERYTHING, limit=500).topics
        assert {one.audience for one in (*page, *known)} == {"owner"}
        assert len(page) == (len(KEYS) + 2) * len(TALK) * 2
        as_owner = told(hold, OWNER)
        assert as_owner == told(hold, SYSTEM)
        assert all("fence" in block.lower() for block in (as_owner[0][0], as_owner[5][0]))


def test_an_owners_words_are_sorted_as_if_there_were_no_audiences(
    sqlite_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    homes: list[list[tuple[Any, ...]]] = []
    for name in ("with", "without"):
        clock = ManualClock()
        with open_home(tmp_path / name, clock=clock) as hold:
            live(hold, clock)
            homes.append(placed(hold))
        monkeypatch.setattr(Batch, "hearers", lambda self, exchange: SYSTEM)
    assert homes[0] == homes[1]
    assert len({place for _, _, _, place, _ in homes[0]}) >= 3


def test_the_owners_queries_carry_no_condition_on_readers(
    store_url: str, tmp_path: Path, clock: ManualClock
) -> None:
    """What the owner reads costs what it did: nothing is asked of the database that was not before."""
    from holdfast.log.connections import Driver

    with open_home(tmp_path / "home", store_url=store_url, clock=clock) as hold:
        live(hold, clock)
        asked: list[str] = []
        begin = Driver.__init__

        def noted(self: Driver, conn: Any, statement: str) -> None:
            asked.append(statement)
            begin(self, conn, statement)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Driver, "__init__", noted)
            told(hold, OWNER)
        assert asked
        assert not [sql for sql in asked if "audience IN" in sql or "audience = ANY" in sql]
