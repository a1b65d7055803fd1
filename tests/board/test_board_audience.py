"""Who may read the board: whatever is sorted, named or asked for, nobody reads what is not theirs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.board import (
    EVERYTHING,
    attachments,
    decisions,
    drafts,
    ingest,
    log_view,
    pending,
    resolve,
    routing,
    sharing,
    spaces,
    stats,
    tasks,
    tools,
    topics,
)
from holdfast.board.attachments import Upload
from holdfast.board.classifier import Classifier
from holdfast.board.context import Context, ContextAsk
from holdfast.board.digests import Digester
from holdfast.board.digests import enqueue as ask_for_digests
from holdfast.board.graph import MapAsk
from holdfast.board.search import SearchAsk, SearchFound
from holdfast.board.topics import Topic
from holdfast.board.visibility import Sight
from holdfast.clock import ManualClock
from holdfast.config.board import BoardConfig
from holdfast.errors import Forbidden, NotFound
from holdfast.log import (
    FOR_OWNER,
    OWNER,
    Audience,
    Classification,
    Entry,
    EntryDraft,
    Reader,
    Threads,
    agenda,
    entries,
    for_group,
    for_peer,
    for_space,
    heard_by,
    sessions,
)
from holdfast.log.audience import token_reader
from holdfast.runtime import Holdfast, open_home

MAIN = "agent:main:main"
GROUP_KEY = "agent:main:discord:group:9"
DM = "agent:main:discord:dm:7"
GROUP = for_group("discord", None, "9")
GUEST = for_peer("discord", None, "7")
P, Q = "space-p", "space-q"
AS_GROUP, AS_GUEST, AS_P, AS_Q = (heard_by(one) for one in (GROUP, GUEST, for_space(P), for_space(Q)))
SAUNA = "The sauna door code for the lake house is 4711, the sauna door code changes on Friday"


class House:
    """A home in which several people talk; `say` logs, `sort` lets the classifier work."""

    def __init__(self, hold: Holdfast, clock: ManualClock) -> None:
        self.hold, self.store, self.clock = hold, hold.store, clock
        self.options = BoardConfig()
        with self.store.write(OWNER) as tx:
            for name in ("P", "Q"):
                spaces.upsert(tx, name)

    def say(self, text: str, audience: Audience = FOR_OWNER, key: str = MAIN, **fields: Any) -> Entry:
        self.clock.advance(seconds=10)
        known = {"role": "user", "audience": audience, "session_key": key}
        with self.store.write(OWNER) as tx:
            draft = ingest.prepare(tx, EntryDraft(content=text, **known | fields), self.options)
            return entries.append(tx, draft).entry

    def sort(self) -> None:
        def room(threads: Threads) -> Classifier:
            recall = self.hold.board.search._recall
            return Classifier(self.store, threads, lambda: self.options, candidates=recall)

        self._run(pending.KIND, room)

    def digest(self) -> None:
        with self.store.write(OWNER) as tx:
            ask_for_digests(tx, due_at=int(tx.now))
        self._run("board.digest", lambda threads: Digester(self.store, threads, lambda: self.options))

    def _run(self, kind: str, room: Any) -> None:
        async def work() -> None:
            runner = agenda.Runner(self.store, self.hold.threads)
            runner.register(kind, room(self.hold.threads).kind())
            await runner.drain()

        self.clock.advance(seconds=20)
        asyncio.run(work())

    def entry(self, said: Entry) -> Entry:
        with self.store.read(OWNER) as tx:
            return entries.get(tx, said.id)

    def topic(self, name: str, **values: Any) -> Topic:
        with self.store.write(OWNER) as tx:
            return topics.upsert(tx, name, **values).topic

    def search(self, q: str, reader: Reader, **sight: Any) -> SearchFound:
        return self.hold.board.search.run(SearchAsk(q=q, sight=Sight(reader=reader, **sight)))

    def context(self, q: str, reader: Reader, **sight: Any) -> Context:
        ask = ContextAsk(q=q, sight=Sight(reader=reader, **sight), mode="full", timeline_limit=20)
        return self.hold.board.continuity.build(ask)

    def told(self, q: str, reader: Reader, **sight: Any) -> str:
        """All that a reader is told by any way of asking."""
        made = self.context(q, reader, **sight)
        assert not made.late
        found = self.search(q, reader, **sight)
        said = [one.text for one in (*found.logs, *found.notes)]
        named = [one.item.name for one in found.topics] + [one.item.title for one in found.tasks]
        shown = self.hold.board.map.build(MapAsk(sight=Sight(reader=reader, **sight)))
        with self.store.read(reader) as tx:
            listed = [entry.content for entry in log_view.listing(tx, EVERYTHING, limit=500).entries]
            listed += [topic.name for topic in topics.listing(tx, EVERYTHING, limit=500).topics]
            listed += [str(topic.digest) for topic in topics.listing(tx, EVERYTHING, limit=500).topics]
        return made.block + json.dumps([made.data, said, named, shown, listed])


@pytest.fixture
def house(store_url: str, tmp_path: Path, clock: ManualClock) -> Iterator[House]:
    with open_home(tmp_path / "home", store_url=store_url, clock=clock) as hold:
        yield House(hold, clock)


@pytest.mark.parametrize("shared", [True, False])
def test_words_in_a_given_space_are_not_sorted_out_of_it(house: House, shared: bool) -> None:
    """P may read Q, and Q may not read P: what is logged in P does not come to lie in Q."""
    of_p, of_q = (for_space(one) if shared else FOR_OWNER for one in (P, Q))
    with house.store.write(OWNER) as tx:
        spaces.connect(tx, P, {Q: True})
        spaces.connect(tx, Q, {P: False})
    there = house.topic("Sauna door code", space_id=Q, audience=of_q)
    for number in range(3):
        house.say(f"The sauna door code, part {number}", of_q, topic_id=there.id, space_id=Q)
    house.sort()
    said = house.say(SAUNA, of_p, space_id=P)
    house.sort()
    now = house.entry(said)
    assert now.status == "classified"
    assert (now.space_id, now.topic_id == there.id) == (P, False)
    with house.store.read(OWNER) as tx:
        assert topics.get(tx, now.topic_id or "", EVERYTHING).space_ids == {P}
        assert now.id not in {e.id for e in log_view.listing(tx, resolve(tx, space_id=Q)).entries}
    assert "4711" not in house.told("sauna door code", AS_Q)


def test_the_owners_words_may_be_filed_under_a_shared_topic_and_are_not_read_there(house: House) -> None:
    shared = house.topic("Sauna door code", space_id=P, audience=for_space(P))
    for number in range(3):
        text = f"The sauna door code for the lake house, part {number}"
        house.say(text, for_space(P), key="agent:main:token", space_id=P, topic_id=shared.id)
    house.sort()
    secret = house.say(SAUNA)
    house.sort()
    assert house.entry(secret).topic_id == shared.id
    house.digest()
    for sight in ({}, {"space_id": P}, {"session_key": f"clawboard:topic:{shared.id}"}):
        told = house.told("sauna door code", AS_P, **sight)
        assert "part 2" in told
        assert "4711" not in told
    with house.store.read(AS_P) as tx, pytest.raises(NotFound):
        entries.get(tx, secret.id)
    assert "4711" in house.told("sauna door code", OWNER)


def test_a_group_that_mentions_a_topic_does_not_read_what_the_owner_said_of_it(house: House) -> None:
    house.topic("Sauna", space_id=P)
    for _ in range(2):
        house.say(SAUNA, space_id=P)
    house.sort()
    house.say("What is the sauna door code of the lake house?", GROUP, GROUP_KEY)
    house.sort()
    told = house.told("sauna door code", AS_GROUP, session_key=GROUP_KEY)
    assert "lake house?" in told
    assert "4711" not in told


def test_a_groups_talk_is_not_filed_under_a_topic_that_the_group_may_not_see(house: House) -> None:
    private = house.topic("Sauna door code of the lake house")
    asked = house.say("What is the sauna door code of the lake house?", GROUP, GROUP_KEY)
    house.sort()
    made = house.entry(asked).topic_id
    assert made not in (None, private.id)
    with house.store.read(AS_GROUP) as tx:
        topic = topics.get(tx, made or "", EVERYTHING)
        assert (topic.audience, topic.agent_id) == (GROUP, "main")
        assert [one.id for one in topics.listing(tx, EVERYTHING).topics] == [made]


def test_an_exchange_ends_where_other_people_hear_it(house: House) -> None:
    """The owner's and a guest's words of one session are sorted apart."""
    mine = house.say("The boat needs varnish, order two tins of varnish for the boat", key=DM)
    house.sort()
    theirs = house.say("ok", GUEST, DM)
    reply = house.say("Two tins of varnish for the boat it is", GUEST, DM, role="assistant")
    house.sort()
    topic = house.entry(mine).topic_id
    assert topic is not None
    assert topic not in (house.entry(theirs).topic_id, house.entry(reply).topic_id)


def test_a_session_looks_from_the_space_it_was_given_and_not_from_where_it_was_sorted(house: House) -> None:
    house.topic("Sauna door code of the lake house", space_id=P)
    said = house.say(SAUNA)
    with house.store.write(OWNER) as tx:
        entries.annotate(tx, said.id, {"space_id": P, "status": Classification.CLASSIFIED})
        assert resolve(tx, session_key=MAIN).source is None
        sessions.give_space(tx, sessions.ensure(tx, MAIN), Q)
        assert resolve(tx, session_key=MAIN).source == Q
        sessions.give_space(tx, sessions.ensure(tx, DM), P)
        assert resolve(tx, session_key=DM).source == P


def test_a_limited_writer_gets_a_topic_of_its_own_where_the_name_is_taken(house: House) -> None:
    hidden = house.topic("Plans", space_id=P)
    with house.store.write(AS_P) as tx:
        own = topics.upsert(tx, "plans", space_id=P, audience=for_space(P))
        again = topics.upsert(tx, "Plans", space_id=P, audience=for_space(P))
        assert own.created
        assert own.topic.id == again.topic.id != hidden.id
        renamed = topics.upsert(tx, "Other", space_id=P, audience=for_space(P)).topic
        with pytest.raises(Exception, match="already"):
            topics.update(tx, renamed.id, {"name": "Plans"})
    assert house.topic("Plans", space_id=P).id == hidden.id
    of_agent = token_reader("token", None, frozenset(("coder",)))
    with house.store.write(of_agent) as tx:
        mine = topics.upsert(tx, "Plans", space_id=P).topic
        assert mine.id not in (hidden.id, own.topic.id)
        assert topics.get(tx, mine.id, EVERYTHING).agent_id == "coder"


def test_an_id_that_is_taken_opens_nothing(house: House) -> None:
    hidden = house.topic("Plans", space_id=P)
    with house.store.write(AS_P) as tx:
        with pytest.raises(Exception, match="in use"):
            topics.upsert(tx, "Mine", id_=hidden.id, space_id=P, audience=for_space(P))
        with pytest.raises(NotFound):
            tasks.upsert(tx, "Mine", topic_id=hidden.id, audience=for_space(P))


def test_a_limited_writer_does_not_delete_the_owners_tasks_with_its_topic(house: House) -> None:
    shared = house.topic("Plans", space_id=P, audience=for_space(P))
    with house.store.write(OWNER) as tx:
        tasks.upsert(tx, "Private", topic_id=shared.id)
    with house.store.write(AS_P) as tx:
        with pytest.raises(Forbidden) as refused:
            topics.delete(tx, shared.id)
        assert refused.value.code == "topic_in_use"
        moved = topics.update(tx, shared.id, {"name": "Plans of P", "tags": ["space:P"]})
    with house.store.write(OWNER) as tx:
        assert [one.space_ids for one in tasks.of_topic(tx, shared.id)] == [moved.space_ids]
        topics.delete(tx, shared.id)


def test_a_digest_is_made_from_what_all_readers_of_the_topic_may_read(house: House) -> None:
    shared = house.topic("Sauna", space_id=P, audience=for_space(P))
    for number in range(4):
        house.say(f"The lake house sauna was heated on day {number}.", for_space(P), topic_id=shared.id)
        house.say(f"The lake house sauna code is {4711 + number}.", topic_id=shared.id)
    house.sort()
    house.digest()
    with house.store.read(OWNER) as tx:
        digest = topics.get(tx, shared.id, EVERYTHING).digest or ""
    assert "heated" in digest
    assert "47" not in digest


def test_sharing_a_topic_lets_its_tasks_be_found_too(house: House) -> None:
    topic = house.topic("Regatta", space_id=P)
    with house.store.write(OWNER) as tx:
        task = tasks.upsert(tx, "Sew the regatta flag", topic_id=topic.id).task
    assert not house.search("regatta flag", AS_P).tasks
    with house.store.write(OWNER) as tx:
        sharing.share_topic(tx, topic.id, for_space(P), with_entries=False)
    found = house.search("regatta flag", AS_P)
    assert [one.item.id for one in found.tasks] == [task.id]
    assert [one.item.id for one in found.topics] == [topic.id]


def test_routing_memory_is_for_those_who_may_read_all_the_words_in_it(house: House) -> None:
    own, shared = house.topic("Secret"), house.topic("Open", audience=GROUP)
    options = house.options.routing_memory
    with house.store.write(OWNER) as tx:
        item = routing.Routed(int(tx.now), shared.id, "Open", "what the group said")
        routing.remember(tx, GROUP_KEY, item, options, GROUP)
    with house.store.read(AS_GROUP) as tx:
        assert [one.anchor for one in routing.recall(tx, GROUP_KEY, options, EVERYTHING)] == [item.anchor]
    with house.store.read(AS_GUEST) as tx:
        assert not routing.recall(tx, GROUP_KEY, options, EVERYTHING)
    with house.store.write(OWNER) as tx:
        private = routing.Routed(int(tx.now), own.id, "Secret", "what the owner said")
        routing.remember(tx, GROUP_KEY, private, options, FOR_OWNER)
        assert len(routing.recall(tx, GROUP_KEY, options, EVERYTHING)) == 2
    with house.store.read(AS_GROUP) as tx:
        assert not routing.recall(tx, GROUP_KEY, options, EVERYTHING)


def test_two_readers_never_share_a_kept_answer(house: House) -> None:
    house.say(SAUNA)
    house.topic("Sauna")
    for reader, seen in ((OWNER, True), (AS_P, False), (OWNER, True), (AS_GROUP, False)):
        assert ("4711" in house.told("sauna door code", reader)) is seen
        assert ("Sauna" in house.context("anything at all", reader).block) is seen


def test_pages_of_a_limited_reader_are_full_and_go_on(house: House) -> None:
    for number in range(40):
        house.say(f"owner {number}", topic_id=None, space_id=P)
        if number % 4 == 0:
            house.say(f"shared {number}", for_space(P), space_id=P)
    with house.store.read(AS_P) as tx:
        for view in (EVERYTHING, resolve(tx, space_id=P)):
            first = log_view.listing(tx, view, limit=4)
            rest = log_view.listing(tx, view, limit=100, cursor=first.next)
            assert [len(first.entries), len(rest.entries)] == [4, 6]
            assert rest.next is None
            assert all(e.content.startswith("shared") for e in (*first.entries, *rest.entries))


def test_figures_count_what_the_reader_may_read(house: House) -> None:
    house.say("waits")
    house.say("waits too", for_space(P))
    house.topic("Mine")
    house.topic("Ours", audience=for_space(P))
    with house.store.read(AS_P) as tx:
        counted = stats.figures(tx)
    assert (counted["pending"], counted["topics"]["active"], counted["spaces"]) == (1, 1, 1)


def test_files_and_drafts_are_read_by_those_they_are_for(house: House) -> None:
    upload = Upload("a.txt", "text/plain", b"hello")
    said = house.say("look", for_space(P))
    with house.store.write(OWNER) as tx:
        own = attachments.add(tx, upload, "0" * 64, audience=FOR_OWNER)
        shared = attachments.add(tx, upload, "0" * 64, audience=for_space(P))
        of_entry = attachments.add(tx, upload, "0" * 64, audience=FOR_OWNER, entry_id=said.id)
        drafts.put(tx, "k", "half a sentence")
    with house.store.write(AS_P) as tx:
        with pytest.raises(NotFound):
            attachments.get(tx, own.id)
        with pytest.raises(NotFound):
            attachments.bind(tx, [own.id], said.id)
        assert attachments.get(tx, shared.id).id == shared.id
        assert [one.id for one in attachments.of_entry(tx, said.id)] == [of_entry.id]
        assert drafts.get(tx, "k") is None
        assert drafts.listing(tx) == []
        with pytest.raises(Forbidden):
            drafts.put(tx, "k", "mine")
    with house.store.read(AS_Q) as tx:
        assert attachments.of_entry(tx, said.id) == []


def test_the_reasons_of_a_sorting_tell_others_no_words(house: House) -> None:
    said = house.say(SAUNA, for_space(P), space_id=P)
    house.sort()
    with house.store.read(AS_P) as tx:
        assert set(decisions.explain(tx, said.id).reasons) == {"text"}
    with house.store.read(AS_Q) as tx, pytest.raises(NotFound):
        decisions.explain(tx, said.id)


class TestTools:
    def use(self, house: House, name: str, reader: Reader, key: str, **arguments: Any) -> dict[str, Any]:
        caller = tools.Caller("main", reader, key)
        return tools.call(house.hold.board, f"clawboard_{name}", arguments, caller)

    def test_another_sessions_key_narrows_and_never_widens(self, house: House) -> None:
        house.say(SAUNA)
        house.say("The sauna is hot in the lake house", GROUP, GROUP_KEY)
        asked = {"q": "sauna lake house"}
        for reader, key in ((AS_GROUP, GROUP_KEY), (AS_GUEST, DM)):
            found = self.use(house, "search", reader, key, **asked, sessionKey=MAIN)
            assert "4711" not in json.dumps(found)
            block = self.use(house, "context", reader, key, **asked, sessionKey=MAIN)["block"]
            assert "4711" not in block
        assert "4711" in json.dumps(self.use(house, "search", OWNER, MAIN, **asked))
        assert "4711" not in json.dumps(self.use(house, "search", OWNER, MAIN, **asked, sessionKey=GROUP_KEY))

    def test_what_is_not_theirs_is_not_there(self, house: House) -> None:
        said, topic = house.say(SAUNA), house.topic("Sauna")
        with house.store.write(OWNER) as tx:
            task = tasks.upsert(tx, "Heat it", topic_id=topic.id).task
        for name, id_ in (("get_log", said.id), ("get_topic", topic.id), ("get_task", task.id)):
            with pytest.raises(NotFound):
                self.use(house, name, AS_GROUP, GROUP_KEY, id=id_)
        with pytest.raises(NotFound):
            self.use(house, "update_task", AS_GROUP, GROUP_KEY, id=task.id, title="Burn it")
        with pytest.raises(NotFound):
            self.use(house, "create_note", AS_GROUP, GROUP_KEY, relatedLogId=said.id, text="mine")

    def test_a_note_is_for_those_who_read_the_entry_and_hear_the_session(self, house: House) -> None:
        with house.store.write(OWNER) as tx:
            sessions.ensure(tx, GROUP_KEY)
        open_ = house.say("The regatta is on Sunday", Audience("anyone"))
        theirs = house.say("We row at nine", GROUP, GROUP_KEY)
        by_owner = self.use(house, "create_note", OWNER, MAIN, relatedLogId=theirs.id, text="they row")
        by_group = self.use(house, "create_note", AS_GROUP, GROUP_KEY, relatedLogId=open_.id, text="Sunday!")
        again = self.use(house, "create_note", AS_GROUP, GROUP_KEY, relatedLogId=open_.id, text="Sunday!")
        assert (again["created"], again["id"]) == (False, by_group["id"])
        with house.store.read(OWNER) as tx:
            kept = {e.id: e.audience for e in entries.get_many(tx, [by_owner["id"], by_group["id"]])}
        assert kept == {by_owner["id"]: FOR_OWNER, by_group["id"]: GROUP}
