from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

import forks
from builders import KEY, in_threads, session
from holdfast.clock import ManualClock
from holdfast.errors import Conflict, InvalidInput, NotFound
from holdfast.log import (
    FOR_ANYONE,
    OWNER,
    EntryDraft,
    Session,
    SessionStatus,
    Store,
    changes,
    entries,
    for_space,
    sessions,
    surfaces,
)


def read(store: Store, id_: str) -> Session:
    with store.read(OWNER) as tx:
        return sessions.get(tx, id_)


def test_a_key_has_one_active_session(store: Store) -> None:
    assert session(store) == session(store)
    assert session(store, "agent:main:web:dm:7").id != session(store).id


def test_concurrent_first_messages_find_the_same_session(store: Store) -> None:
    made = in_threads(8, lambda n: session(store, f"agent:main:web:dm:{n % 2}"))
    assert len({s.id for s in made}) == 2


ENSURE = """
import sys
from holdfast.log import OWNER, open_store, sessions
store = open_store(sys.argv[1])
for n in range(20):
    with store.write(OWNER) as tx:
        print(sessions.ensure(tx, f"agent:main:web:dm:{n}").id)
"""


def test_processes_that_start_at_once_find_the_same_sessions(store_url: str) -> None:
    command = [sys.executable, "-c", ENSURE, store_url]
    running = [forks.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate()[0].split() for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert len(said[0]) == 20
    assert said[0] == said[1] == said[2]


def test_what_a_key_says_of_its_session_is_known_from_the_start(store: Store) -> None:
    made = session(store, "agent:main:discord:channel:42", label="Team", parent_key=KEY)
    assert (made.agent_id, made.channel, made.chat_type) == ("main", "discord", "room")
    assert (made.label, made.parent_key) == ("Team", KEY)
    assert read(store, made.id) == made


def test_an_unknown_field_is_refused(store: Store) -> None:
    with pytest.raises(InvalidInput):
        session(store, colour="red")


def test_a_session_keeps_all_that_openclaw_keeps_of_one(store: Store) -> None:
    fields = {
        "chat_type": "direct",
        "input_tokens": 1,
        "output_tokens": 2,
        "total_tokens": 3,
        "context_tokens": 4,
        "compaction_count": 5,
        "memory_flush_at": 6,
        "memory_flush_compaction_count": 7,
        "meta": {"sessionFile": "x.jsonl", "deep": [None, {"🌊": 1}]},
    }
    made = session(store)
    with store.write(OWNER) as tx:
        after = sessions.update(tx, made, **fields)
    assert read(store, made.id) == after
    assert {name: getattr(after, name) for name in fields} == fields


def test_only_someone_outside_makes_a_session_fresh(store: Store, clock: ManualClock) -> None:
    made = session(store)
    began = clock.now()
    clock.advance(hours=1)
    with store.write(OWNER) as tx:
        by_system = sessions.touch(tx, made, external=False)
    assert (by_system.last_external_at, by_system.updated_at) == (began, clock.now())
    clock.advance(hours=1)
    with store.write(OWNER) as tx:
        by_user = sessions.touch(tx, by_system, external=True)
    assert by_user.last_external_at == clock.now()
    assert read(store, made.id) == by_user


def test_freshness_never_goes_back(store: Store, clock: ManualClock) -> None:
    made = session(store)
    clock.advance(hours=-1)
    with store.write(OWNER) as tx:
        assert sessions.touch(tx, made, external=True).last_external_at == made.last_external_at


def test_a_reset_leaves_a_successor_under_the_same_key(store: Store, clock: ManualClock) -> None:
    old = session(store, label="Desk")
    clock.advance(hours=1)
    with store.write(OWNER) as tx:
        new = sessions.reset(tx, old, cause="daily")
    assert session(store) == new
    assert (new.label, new.turn_count, new.last_external_at) == ("Desk", 0, clock.now())
    before = read(store, old.id)
    assert (before.status, before.successor_id) == (SessionStatus.ARCHIVED, new.id)
    assert (before.archived_at, before.archive_cause) == (clock.now(), "daily")
    with store.read(OWNER) as tx:
        assert [s.id for s in sessions.history(tx, KEY)] == [old.id, new.id]


def test_an_archived_session_cannot_be_reset_or_archived_again(store: Store) -> None:
    with store.write(OWNER) as tx:
        gone = sessions.archive(tx, sessions.ensure(tx, KEY), cause="user")
    with store.write(OWNER) as tx:
        with pytest.raises(Conflict):
            sessions.reset(tx, gone, cause="again")
        with pytest.raises(Conflict):
            sessions.archive(tx, gone, cause="again")
    assert session(store).id != gone.id


def test_of_two_resets_at_once_one_wins(store: Store) -> None:
    made = session(store)

    def reset(n: int) -> bool:
        try:
            with store.write(OWNER) as tx:
                sessions.reset(tx, made, cause=str(n))
        except Conflict:
            return False
        return True

    assert sum(in_threads(6, reset)) == 1
    with store.read(OWNER) as tx:
        assert len(sessions.history(tx, KEY)) == 2


def test_a_change_made_on_a_stale_copy_is_refused_whole(store: Store) -> None:
    made = session(store)
    with store.write(OWNER) as tx:
        current = sessions.update(tx, made, label="first")
    with store.write(OWNER) as tx, pytest.raises(Conflict) as caught:
        sessions.update(tx, made, label="second")
    assert caught.value.code == "stale_session"
    assert read(store, made.id) == current


def test_fields_that_say_who_a_session_is_cannot_be_changed(store: Store) -> None:
    made = session(store)
    with store.write(OWNER) as tx, pytest.raises(ValueError, match="key"):
        sessions.update(tx, made, key="agent:other:main")


def test_a_session_is_found_by_key_or_id_even_when_archived(store: Store) -> None:
    made = session(store)
    with store.write(OWNER) as tx:
        gone = sessions.archive(tx, made, cause="user")
        assert sessions.find(tx, KEY) == gone
        assert sessions.find(tx, made.id) == gone
        new = sessions.ensure(tx, KEY)
        assert sessions.find(tx, KEY) == new
        with pytest.raises(NotFound):
            sessions.find(tx, "agent:none:main")


def test_the_most_recently_used_sessions_are_listed_first(store: Store, clock: ManualClock) -> None:
    keys = [f"agent:a{n % 2}:web:dm:{n}" for n in range(6)]
    made = []
    for key in keys:
        clock.advance(seconds=1)
        made.append(session(store, key, parent_key="p" if key.endswith("3") else None))
    clock.advance(seconds=1)
    with store.write(OWNER) as tx:
        sessions.touch(tx, made[0], external=False)
    with store.write(OWNER) as tx:
        sessions.archive(tx, made[1], cause="x")
        assert [s.key for s in sessions.listing(tx)] == [keys[n] for n in (0, 5, 4, 3, 2)]
        assert [s.key for s in sessions.listing(tx, limit=2, offset=1)] == [keys[5], keys[4]]
        assert [s.key for s in sessions.listing(tx, agent_ids=frozenset({"a1"}))] == [keys[5], keys[3]]
        assert [s.key for s in sessions.listing(tx, parent_key="p")] == [keys[3]]
        assert [s.id for s in sessions.listing(tx, status=SessionStatus.ARCHIVED)] == [made[1].id]
        assert len(sessions.listing(tx, status=None, offset=-1)) == 6


def test_adopting_a_session_twice_keeps_the_first(store: Store) -> None:
    with store.write(OWNER) as tx:
        made = sessions.archive(tx, sessions.ensure(tx, KEY), cause="x")
        other = replace(made, id=sessions.session_id(), label="from elsewhere")
        assert sessions.adopt(tx, other) == other
        assert sessions.adopt(tx, replace(other, label="again")) == other


def test_every_change_of_a_session_is_in_the_feed(store: Store) -> None:
    made = session(store)
    with store.write(OWNER) as tx:
        new = sessions.reset(tx, sessions.touch(tx, made, external=True), cause="x")
    with store.read(OWNER) as tx:
        seen = [(c.type, c.entity_id) for c in changes.since(tx, 0)]
    assert seen == [("session.upserted", id_) for id_ in (made.id, made.id, made.id, new.id)]


def test_who_may_read_what_was_said_under_a_key_is_told_whatever_its_spelling(store: Store) -> None:
    with store.write(OWNER) as tx:
        sessions.ensure(tx, "agent:main:main", audience=FOR_ANYONE)
        for key, heard in (("agent:Main:main", for_space("a")), ("agent:main:main", for_space("b"))):
            entries.append(tx, EntryDraft(content="x", session_key=key, audience=heard))
        gone = entries.append(tx, EntryDraft(content="x", session_key="agent:main:main")).entry
        entries.delete(tx, gone.id)
        every = {FOR_ANYONE, for_space("a"), for_space("b")}
        assert surfaces.audiences_under(tx, "agent:Main:main") == every
        assert surfaces.audiences_under(tx, "agent:main:main") == every - {for_space("a")}
        assert surfaces.audiences_under(tx, "nobody spoke here") == frozenset()


def test_an_archived_session_can_be_gone_on_with_until_something_took_its_place(store: Store) -> None:
    made = session(store)
    with store.write(OWNER) as tx:
        archived = sessions.archive(tx, made, cause="answered")
        again = sessions.reopen(tx, archived)
    assert (again.id, again.status, again.archived_at, again.archive_cause) == (
        made.id,
        SessionStatus.ACTIVE,
        None,
        None,
    )
    assert session(store).id == made.id
    with store.write(OWNER) as tx:
        sessions.archive(tx, sessions.get(tx, made.id), cause="answered")
        sessions.ensure(tx, KEY)
        with pytest.raises(Conflict):
            sessions.reopen(tx, sessions.get(tx, made.id))
