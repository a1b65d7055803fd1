"""Who may read what: audiences among themselves, and readers in their transactions."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast.errors import Conflict, Forbidden, InvalidInput, NotFound
from holdfast.log import (
    FOR_ANYONE,
    FOR_OWNER,
    NOBODY,
    OWNER,
    SYSTEM,
    EntryDraft,
    EntryFilter,
    Reader,
    Store,
    covers,
    entries,
    for_group,
    for_peer,
    for_space,
    heard_by,
    meet,
    of_key,
    parse_audience,
    sessions,
    surfaces,
    turns,
)
from holdfast.log.audience import SurfaceName, surface_of, token_reader

MAIN, GROUP = "agent:main:main", "agent:main:discord:group:42"
HERE = for_group("discord", None, "42")
AUDIENCES = (
    FOR_OWNER,
    FOR_ANYONE,
    HERE,
    for_group("discord", None, "43"),
    for_peer("sms", "a", "7"),
    for_space("s"),
)
audiences = st.sampled_from(AUDIENCES)
readers = st.sampled_from(
    [OWNER, NOBODY, *(heard_by(one) for one in AUDIENCES), heard_by(HERE, frozenset("s"))]
)


@given(found=st.lists(audiences), reader=readers)
def test_what_is_made_of_several_is_read_by_those_who_may_read_each(found: list[str], reader: Reader) -> None:
    if reader.may_read(meet(found)):
        assert all(reader.may_read(one) for one in found)


@given(wide=audiences, narrow=audiences, reader=readers)
def test_what_covers_another_is_read_by_everyone_who_reads_that(
    wide: str, narrow: str, reader: Reader
) -> None:
    if covers(wide, narrow) and narrow != FOR_OWNER and reader.may_read(narrow):
        assert reader.may_read(wide)


@given(one=readers, other=readers, audience=audiences)
def test_two_readers_together_read_what_both_may(one: Reader, other: Reader, audience: str) -> None:
    assert one.within(other).may_read(audience) == (one.may_read(audience) and other.may_read(audience))


@given(st.text(min_size=1), st.none() | st.text(min_size=1), st.text(min_size=1))
def test_a_surface_is_read_back_from_its_audience(channel: str, account: str | None, id_: str) -> None:
    for made in (for_group(channel, account, id_), for_peer(channel, account, id_)):
        assert surface_of(made) == SurfaceName(channel, account, id_)


def test_a_key_tells_of_groups_and_all_else_is_the_owners() -> None:
    assert of_key(GROUP) == of_key(f"{GROUP}:thread:9") == HERE
    assert of_key("agent:main:discord:channel:42") == HERE
    assert of_key("channel:42|thread:1") == "group:42::*"
    for key in (
        None,
        MAIN,
        "agent:main:sms:dm:7",
        "clawboard:topic:t",
        "agent:main:subagent:x",
        "whatever",
        "",
    ):
        assert of_key(key) == FOR_OWNER


@pytest.mark.parametrize("text", ["", "owners", "space:", "group", "group:\n", "space:" + "x" * 900])
def test_what_is_no_audience_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_audience(text)


def said(store: Store, key: str, text: str, **more: object) -> str:
    with store.write(OWNER) as tx:
        return entries.append(tx, EntryDraft(content=text, session_key=key, **more)).entry.id  # type: ignore[arg-type]


def test_every_read_of_entries_is_held_to_its_reader(store: Store) -> None:
    with store.write(OWNER) as tx:
        private, open_ = sessions.ensure(tx, MAIN), sessions.ensure(tx, GROUP)
    secret = said(store, MAIN, "a secret", session_id=private.id, idempotency_key="k")
    heard = said(store, GROUP, "heard by all", session_id=open_.id)
    with store.read(open_.reader) as tx:
        assert entries.get(tx, heard).content == "heard by all"
        for hidden in (lambda: entries.get(tx, secret), lambda: entries.by_key(tx, "k")):
            with pytest.raises(NotFound):
                hidden()
        assert [e.id for e in entries.get_many(tx, [secret, heard])] == [heard]
        assert [e.id for e in entries.listing(tx, EntryFilter()).entries] == [heard]
        assert [e.id for e in entries.after(tx, 0)] == [heard]
        assert entries.transcript(tx, private.id) == []
        assert [r.id for r in entries.refs(tx, EntryFilter(), limit=9)] == [heard]
        assert [s.key for s in sessions.listing(tx)] == [GROUP]
        assert sessions.active(tx, MAIN) is None
        assert sessions.history(tx, MAIN) == []
    with store.read(token_reader("beta", None, frozenset(("beta",)))) as tx:
        assert entries.listing(tx, EntryFilter()).entries == []
    with store.read(OWNER) as tx:
        assert len(entries.listing(tx, EntryFilter()).entries) == 2


def test_a_key_that_is_taken_tells_nobody_by_what(store: Store) -> None:
    said(store, MAIN, "a secret", idempotency_key="k")
    draft = EntryDraft(content="mine", session_key=GROUP, idempotency_key="k")
    with pytest.raises(Conflict, match="in use"), store.write(heard_by(HERE)) as tx:
        entries.append(tx, draft)
    with store.write(OWNER) as tx:
        sessions.ensure(tx, MAIN)
    with pytest.raises(Forbidden), store.write(heard_by(HERE)) as tx:
        sessions.ensure(tx, MAIN)


def test_a_turn_and_what_it_says_are_for_those_who_hear_its_session(store: Store) -> None:
    with store.write(OWNER) as tx:
        session = sessions.ensure(tx, GROUP)
        turn = turns.accept(tx, session, EntryDraft(content="hello", audience=FOR_OWNER), key="t").turn
        other = turns.accept(tx, sessions.ensure(tx, MAIN), EntryDraft(content="psst"), key="u").turn
    with store.read(session.reader) as tx:
        assert turns.get(tx, turn.id).audience == HERE
        assert entries.get(tx, turn.input_id or "").audience == HERE
        with pytest.raises(NotFound):
            turns.get(tx, other.id)
        assert turns.get_many(tx, [turn.id, other.id]) == [turns.get(tx, turn.id)]


def test_an_audience_is_only_ever_widened(store: Store) -> None:
    id_ = said(store, MAIN, "a plan")
    with store.write(OWNER) as tx:
        assert entries.widen(tx, id_, HERE).audience == HERE
    for narrower in (FOR_OWNER, for_space("s")):
        with pytest.raises(Conflict), store.write(OWNER) as tx:
            entries.widen(tx, id_, narrower)


def test_a_session_that_more_people_hear_begins_anew_and_one_that_fewer_hear_goes_on(store: Store) -> None:
    with store.write(OWNER) as tx:
        session = sessions.ensure(tx, GROUP, audience=FOR_OWNER)
        turns.accept(tx, session, EntryDraft(content="alone here"), key="t")
        session = sessions.get(tx, session.id)
        fresh = sessions.heard_now(tx, session, HERE)
        assert (fresh.id != session.id, fresh.audience) == (True, HERE)
        assert sessions.heard_now(tx, fresh, FOR_OWNER).id == fresh.id


def test_a_surface_is_private_until_somebody_else_writes_there(store: Store) -> None:
    def declared(channel: str, id_: str) -> bool:
        return (channel, id_) == ("discord", "42")

    with store.write(OWNER) as tx:
        assert surfaces.heard_under(tx, GROUP, declared) == FOR_OWNER
        assert surfaces.expose(tx, HERE, "eve")
        assert not surfaces.expose(tx, HERE, "mal")
        assert surfaces.heard_under(tx, GROUP, declared) == HERE
        assert [one.sender for one in surfaces.listing(tx)] == ["eve"]
        assert surfaces.reclaim(tx, HERE)
        assert surfaces.heard_under(tx, GROUP, declared) == FOR_OWNER
        assert surfaces.heard_under(tx, "agent:main:discord:group:43", declared) == for_group(
            "discord", None, "43"
        )


# Where the runtime acts for nobody. A room that needs more of it says here why it does not act for somebody.
# Agents: an approval of what a server of others offers is asked for nobody.
# Context: what engines are told is noted and retried for nobody; its words are for who hears the session.
AS_SYSTEM = {
    "adopt": 1, "agents": 89, "board": 20, "channels": 23, "context": 42, "continuation": 13, "gateway": 7,
    "backup": 2, "cli": 1, "log": 28, "memory": 12, "people": 2,
    "plugins_bundled": 2, "runtime": 8, "services": 4,
}  # fmt: skip


def test_what_reads_as_the_system_is_counted() -> None:
    root = Path(holdfast.__file__).parent
    found = dict.fromkeys(AS_SYSTEM, 0)
    for path in root.rglob("*.py"):
        names = (
            n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Name) and n.id == "SYSTEM"
        )
        count = sum(1 for _ in names)
        room = path.relative_to(root).parts[0].removesuffix(".py")
        if count:
            found[room] = found.get(room, 0) + count
    assert SYSTEM.reads_all
    assert {room: n for room, n in found.items() if n > AS_SYSTEM.get(room, 0)} == {}
