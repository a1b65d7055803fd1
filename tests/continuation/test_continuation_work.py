"""Elected turns, from the call to the committed turn that acts on them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from continuation_play import KEY, OTHER, Play
from pydantic import ValidationError

from holdfast import migrations
from holdfast.agents.subagents import registry
from holdfast.clock import ManualClock
from holdfast.context import Pressure
from holdfast.continuation import Phase, Record, Status, records
from holdfast.continuation.state import Deliver, IllegalStep
from holdfast.log import (
    FOR_OWNER,
    OWNER,
    EntryDraft,
    Store,
    Threads,
    TurnStatus,
    Tx,
    agenda,
    chains,
    sessions,
    sqlite_url,
    turns,
)


@pytest.fixture
def play(store: Store, clock: ManualClock, threads: Threads, tmp_path: Path) -> Play:
    """On both engines."""
    return Play(store, clock, threads, tmp_path / "payloads")


@pytest.fixture
def staged(sqlite_store: Store, clock: ManualClock, threads: Threads, tmp_path: Path) -> Callable[..., Play]:
    def make(**given: Any) -> Play:
        return Play(sqlite_store, clock, threads, tmp_path / "payloads", **given)

    return make


def elect(reason: str = "look again", **more: Any) -> tuple[str, dict[str, Any]]:
    return "continue_work", {"reason": reason, **more}


def test_an_elected_turn_comes_after_its_delay_counted_from_the_end_of_the_turn_and_is_marked_with_its_commit(
    play: Play,
) -> None:
    play.say()
    live = play.begin()
    assert live is not None
    assert play.call(live, "continue_work", reason="check the build", delaySeconds=30) == {
        "status": "scheduled",
        "delaySeconds": 30,
    }
    play.clock.advance(seconds=100)
    assert play.due() == 0
    play.end(live)
    assert play.later(29) == 0
    assert play.later(1) == 1
    woken = play.begin()
    assert woken is not None
    assert woken.turn.trigger == "continuation"
    [record] = play.records()
    assert (record.status, record.phase) == (Status.RUNNING, Phase.GRANTED)
    play.end(woken)
    [record] = play.records()
    assert (record.status, record.disposition) == (Status.SUCCEEDED, "granted")
    assert record.delivered
    assert play.later(3600) == 0
    assert play.waiting_turns() == []


@pytest.mark.parametrize("answered", [False, True])
def test_an_election_of_a_turn_that_was_cut_off_is_made_once_whether_or_not_its_call_was_answered(
    staged: Callable[..., Play], answered: bool
) -> None:
    play = staged()
    play.say()
    live = play.begin()
    assert live is not None
    play.call(live, "continue_work", reason="look again")
    with play.store.write(OWNER) as tx:
        if answered:
            result = {"toolCallId": "call-1", "toolName": "continue_work", "isError": False}
            turns.add(tx, live.turn, [EntryDraft(content="{}", role="toolResult", source=result)])
        [back] = agenda.expire(tx, dead=lambda _: True)
        turns.interrupted(tx, back)
    play.clock.advance(seconds=10)
    again = play.begin()
    assert again is not None
    if not answered:
        again.calls = 7
        play.call(again, "continue_work", reason="look again")
    play.end(again)
    waits = [record for record in play.records() if record.status is Status.QUEUED]
    assert [(record.phase, record.election.call) for record in waits] == [
        (Phase.WAITING, "call-1" if answered else "call-8")
    ]
    assert {record.status for record in play.records()} - {Status.QUEUED} <= {Status.CANCELLED}


@pytest.mark.parametrize(
    ("asked", "given"),
    [(None, 15), (0, 0), (1, 5), (60, 60), (10_000, 300), (0.25, 5), (0.0001, 5), (1e18, 300), (10**30, 300)],
)
def test_a_delay_is_kept_within_its_bounds_and_a_changed_one_is_told(
    staged: Callable[..., Play], asked: float | None, given: int
) -> None:
    [answer] = staged().turn(elect(delaySeconds=asked))
    assert answer["delaySeconds"] == given
    assert ("requestedDelaySeconds" in answer) == (asked not in (None, given))


@pytest.mark.parametrize("asked", [True, False, "soon", -1, float("nan")])
def test_what_is_no_number_of_seconds_is_refused_in_both_tools(
    staged: Callable[..., Play], asked: object
) -> None:
    play = staged()
    for name, given in (("continue_work", {"reason": "x"}), ("continue_delegate", {"task": "x"})):
        with pytest.raises(ValidationError):
            play.tool(name).input(**given, delaySeconds=asked)


@pytest.mark.parametrize(("said", "waits"), [("0", 0), ("1", 5), ("9" * 40, 300)])
def test_a_token_s_delay_is_kept_within_the_same_bounds(
    staged: Callable[..., Play], said: str, waits: int
) -> None:
    play = staged()
    play.turn(said=f"later CONTINUE_WORK:{said}")
    play.turn(said=f"later [[CONTINUE_DELEGATE: look +{said}s]]")
    assert [record.election.delay_ms for record in play.records()] == [waits * 1000] * 2


def test_a_clock_set_back_makes_an_elected_turn_wait_no_longer_and_no_shorter_on_two_gateways(
    play: Play,
) -> None:
    """Each gateway notices for itself; what one has moved the other leaves alone."""
    play.turn(elect(delaySeconds=60))

    async def noticed_twice() -> None:
        both = [agenda.Runner(play.store, play.threads) for _ in range(2)]
        for runner in both:
            play.room.register(runner)
        play.clock.advance(seconds=10)
        play.clock.set(play.clock.now() - 3_600_000)
        for runner in both:
            await runner._heed_clock()

    asyncio.run(noticed_twice())
    play.later(49)
    assert play.waiting_turns() == []
    play.later(1)
    assert [turn.trigger for turn in play.waiting_turns()] == ["continuation"]


def test_an_election_costs_the_same_however_many_its_turn_has_made(
    staged: Callable[..., Play], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In statements, so that no machine's mood has a part in it."""
    play = staged(maxChainLength=1000, maxPendingWork=1000)
    play.say()
    live = play.begin()
    assert live is not None
    run: list[str] = []
    driver = Tx.driver
    monkeypatch.setattr(Tx, "driver", lambda tx, sql: (run.append(sql), driver(tx, sql))[1])

    def statements() -> list[str]:
        run.clear()
        play.call(live, "continue_work", reason="go on")
        return list(run)

    costs = [statements() for _ in range(120)]
    assert len(costs[-1]) == len(costs[5])
    play.end(live)
    assert play.chain().steps == 120


def test_the_caps_hold_and_every_refusal_is_told(staged: Callable[..., Play]) -> None:
    play = staged(maxChainLength=3, costCapTokens=1000, maxPendingWork=2)
    answers = play.turn(elect("a"), elect("b"), elect("c"))
    assert [answer["status"] for answer in answers] == ["scheduled", "scheduled", "rejected"]
    assert answers[2]["cap"] == "pending"
    play.later(15)
    answers = play.turn(elect("d"), elect("e"))
    assert [answer["status"] for answer in answers] == ["scheduled", "rejected"]
    assert answers[1]["cap"] == "chain_length"
    play.later(15)
    [answer] = play.turn(elect("f"))
    assert answer["cap"] == "chain_length"
    play.say()
    live = play.begin()
    assert live is not None
    assert play.call(live, "continue_work", reason="g")["status"] == "scheduled"
    play.end(live, tokens=1001)
    [note] = play.waiting_notes()
    assert "1,001 tokens" in note.text
    assert note.trust == "operator"
    assert play.records()[-1].status is Status.FAILED
    assert not play.records()[-1].notice_pending


def test_only_someone_from_outside_begins_a_new_chain(staged: Callable[..., Play]) -> None:
    play = staged(maxChainLength=2)
    for trigger in ("user", "heartbeat", "cron"):
        play.say(trigger=trigger)
        assert play.turn(elect())[0]["status"] == "scheduled"
        play.later(15)
        assert play.turn(elect())[0]["status"] == "scheduled"
        play.later(15)
        assert play.turn(elect())[0]["status"] == "rejected"
        spent = play.chain()
    for trigger in ("session", "subagent-return", "flush"):
        play.say(trigger=trigger, to=OTHER, chain_id=spent.id)
        live = play.begin(OTHER)
        assert live is not None
        assert play.call(live, "continue_work", reason="more")["cap"] == "chain_length"
        play.end(live)


def test_what_falls_due_while_a_turn_runs_is_told_to_it_and_done_with_its_commit(play: Play) -> None:
    play.turn(elect("first"), elect("second"), elect("third", delaySeconds=300))
    play.say()
    busy = play.begin()
    assert busy is not None
    play.later(15)
    assert [r.phase for r in play.records()] == [Phase.FOLDED, Phase.FOLDED, Phase.WAITING]
    play.call(busy, "continue_work", reason="so that there is another model call", delaySeconds=300)
    [note] = busy.told
    assert note.text.startswith("[system:continuation-note] 2 of")
    assert "not fresh commands" in note.text
    assert '"first"' in note.text
    play.end(busy)
    done = play.records()
    assert [r.disposition for r in done if r.delivered] == ["folded-active", "folded-active"]
    assert play.waiting_turns() == []


def test_a_note_that_the_running_turn_never_took_becomes_a_turn(staged: Callable[..., Play]) -> None:
    play = staged()
    play.turn(elect("mind me"))
    play.say()
    busy = play.begin()
    assert busy is not None
    play.later(15)
    play.end(busy)
    assert play.waiting_notes() == []
    assert play.due() == 1
    woken = play.begin()
    assert woken is not None
    assert woken.turn.trigger == "continuation"
    play.end(woken)
    assert play.records()[0].disposition == "granted"


def test_a_turn_that_was_told_and_then_failed_delivers_nothing(staged: Callable[..., Play]) -> None:
    play = staged()
    play.turn(elect("mind me"))
    play.say()
    busy = play.begin()
    assert busy is not None
    play.later(15)
    play.call(busy, "continue_work", reason="another", delaySeconds=300)
    play.fail(busy)
    assert not play.records()[0].delivered
    play.due()
    play.turn()
    assert play.records()[0].delivered


def test_a_busy_session_makes_work_wait_without_a_failure_and_its_idleness_brings_it_forward(
    staged: Callable[..., Play],
) -> None:
    play = staged()
    play.turn(elect())
    play.say("first", trigger="flush")
    flush = play.begin()
    assert flush is not None
    play.later(15)
    [record] = play.records()
    assert (record.phase, record.busy_skips, record.retry_count) == (Phase.PARKED, 1, 0)
    assert record.due_at is not None
    assert record.due == play.clock.now() + 300_000
    play.clock.advance(seconds=1)
    play.end(flush, "NO_REPLY")
    assert play.due() == 1
    play.turn()
    assert play.records()[0].delivered


def test_a_queue_without_an_event_is_looked_at_again_after_growing_waits(staged: Callable[..., Play]) -> None:
    play = staged()
    play.turn(elect())
    play.say("waits to begin")
    play.later(15)
    waits = []
    for _ in range(4):
        [record] = play.records()
        waits.append(record.due - play.clock.now())  # type: ignore[operator]
        play.clock.advance(ms=waits[-1])
        play.due()
    assert waits == [1_000, 2_000, 4_000, 8_000]
    play.turn()
    play.due()
    play.turn()
    assert play.records()[0].delivered


def test_a_failed_turn_is_tried_again_after_five_seconds_and_after_eight_times_a_notice_tells_of_it(
    staged: Callable[..., Play],
) -> None:
    play = staged()
    play.turn(elect("try hard"))
    play.later(15)
    for attempt in range(9):
        woken = play.begin()
        assert woken is not None, attempt
        play.fail(woken)
        assert play.later(4.9) == 0
        play.later(0.1)
    [record] = play.records()
    assert (record.status, record.retry_count, record.notice_pending) == (Status.FAILED, 9, False)
    [note] = play.waiting_notes()
    assert '"try hard"' in note.text
    assert play.later(3600) == 0


def test_an_election_is_kept_when_its_turn_fails_and_dropped_when_someone_stops_it(
    staged: Callable[..., Play],
) -> None:
    play = staged()
    for status, phase in ((TurnStatus.FAILED, Phase.WAITING), (TurnStatus.CANCELLED, Phase.ENDED)):
        play.say()
        live = play.begin()
        assert live is not None
        play.call(live, "continue_work", reason=status.value)
        play.fail(live, status)
        assert play.records()[-1].phase is phase


def test_a_granted_turn_that_someone_stops_is_not_given_again(staged: Callable[..., Play]) -> None:
    play = staged()
    play.turn(elect())
    play.later(15)
    woken = play.begin()
    assert woken is not None
    play.fail(woken, TurnStatus.CANCELLED)
    assert play.records()[0].status is Status.CANCELLED
    assert play.later(600) == 0


def test_long_overdue_turns_give_way_to_the_newest_with_one_note(staged: Callable[..., Play]) -> None:
    play = staged()
    play.turn(elect("old one"), elect("old two"), elect("newest"))
    play.later(15 + 601)
    statuses = [r.status for r in play.records()]
    assert statuses == [Status.CANCELLED, Status.CANCELLED, Status.RUNNING]
    woken = play.begin()
    assert woken is not None
    assert [n.kind for n in woken.told] == ["continuation-warning"]
    play.end(woken)
    assert play.records()[-1].delivered


def test_a_new_election_takes_the_place_of_one_that_waits_for_a_busy_session(
    staged: Callable[..., Play],
) -> None:
    play = staged()
    play.turn(elect("old"))
    play.say("evacuate", trigger="evacuation")
    closed = play.begin()
    assert closed is not None
    play.later(15)
    assert play.records()[0].phase is Phase.PARKED
    play.call(closed, "continue_work", reason="new one")
    play.call(closed, "continue_work", reason="new two")
    play.end(closed)
    assert [r.failure for r in play.records()] == ["superseded", None, None]


def test_a_session_that_only_wakes_itself_is_stopped_without_asking_a_model(
    staged: Callable[..., Play],
) -> None:
    play = staged()
    play.turn(elect("round 0"))
    for n in range(4):
        play.later(15)
        assert play.turn(elect(f"round {n + 1}"), said="NO_REPLY")[0]["status"] == "scheduled"
    play.later(15)
    assert play.waiting_turns() == []
    assert play.records()[-1].failure == "the session only woke itself"
    assert "did nothing but elect" in play.waiting_notes()[-1].text
    play.turn(elect("after a person spoke"))
    play.later(15)
    assert len(play.waiting_turns()) == 1


def test_switched_off_nothing_is_offered_nothing_fires_and_nothing_is_lost(
    staged: Callable[..., Play],
) -> None:
    play = staged()
    play.turn(elect())
    play.given["enabled"] = False
    before = play.records()
    for _ in range(3):
        assert play.later(15) == 1
    assert play.records() == before
    play.say()
    live = play.begin()
    assert live is not None
    assert not any(tool.offered(play.caller(live)) for tool in play.room.tools())
    play.end(live, "I would CONTINUE_WORK")
    assert play.waiting_turns() == []
    play.given["enabled"] = True
    play.later(15)
    play.turn()
    assert play.records()[0].delivered


def test_a_reset_by_hand_cancels_what_was_elected_and_one_by_staleness_does_not(play: Play) -> None:
    play.turn(elect("one"), ("continue_delegate", {"task": "stay", "mode": "post-compaction"}))
    play.say("/new")
    assert [r.status for r in play.records()] == [Status.CANCELLED, Status.CANCELLED]
    play.turn(elect("two"))
    play.clock.advance(hours=30)
    play.say("good morning")
    play.turn()
    play.due()
    play.turn()
    found = play.records()[-1]
    assert found.delivered
    assert found.session_id == play.waiting_session().id


def test_a_token_at_the_end_elects_like_the_tool_and_takes_its_place(staged: Callable[..., Play]) -> None:
    play = staged()
    play.turn(elect("what I called for"), said="All well so far. CONTINUE_WORK:60")
    found = play.records()
    assert sorted(r.status for r in found) == [Status.CANCELLED, Status.QUEUED]
    [kept] = [r for r in found if r.status is Status.QUEUED]
    assert (kept.election.source, kept.election.delay_ms) == ("token", 60_000)
    assert kept.election.text == "what I called for"
    play.later(60)
    woken = play.begin()
    assert woken is not None
    assert play.end(woken, "CONTINUE_WORK").said == ""


def test_a_repeated_call_after_a_crash_finds_its_first_election(staged: Callable[..., Play]) -> None:
    play = staged()
    play.say()
    live = play.begin()
    assert live is not None
    first = play.call(live, "continue_work", reason="once")
    live.calls = 0
    assert play.call(live, "continue_work", reason="once") == first
    play.end(live)
    assert len(play.records()) == 1


def test_pressure_is_told_once_for_each_band_and_again_after_a_compaction(
    staged: Callable[..., Play],
) -> None:
    play = staged()
    told = []
    for used in (10, 30, 30, 50, 82, 91, 96, 96):
        play.say()
        live = play.begin()
        assert live is not None
        told.append([note.text.split("(")[1].split(")")[0] for note in live.told])
        play.end(live, pressure=Pressure(used * 75, 10_000))
    assert told == [[], [], ["25% band"], [], [], ["80% band"], ["90% band"], ["95% band"]]
    play.compacted()
    play.say()
    live = play.begin()
    assert live is not None
    assert [note.kind for note in live.told] == ["post-compaction"]
    play.end(live, pressure=Pressure(30 * 75, 10_000))
    play.say()
    live = play.begin()
    assert live is not None
    assert [note.kind for note in live.told] == ["context-pressure"]


def test_a_wake_runs_with_the_rights_of_the_turn_that_elected_it(staged: Callable[..., Play]) -> None:
    play = staged()
    play.say("a guest asks", owner=False, sender="guest", heard=FOR_OWNER, model="fast/one")
    play.turn(elect())
    play.later(15)
    woken = play.begin()
    assert woken is not None
    assert (woken.terms.owner, woken.terms.sender, woken.terms.model) == (False, "guest", "fast/one")
    assert woken.session.key == KEY


@pytest.mark.parametrize("how", ["ended", "too old", "live"])
def test_work_is_reaped_only_if_it_cannot_run_now_and_its_parent_is_over_for_certain(
    staged: Callable[..., Play], how: str
) -> None:
    """By its own end a run takes along what it elected; this is the hedge for a run that ended unseen, or
    that is older than the config says that one gets."""
    reaped = how != "live"
    play = staged(orphanReapStaleCutoffMs=1_000 if how == "too old" else 3_600_000)
    play.turn(("continue_delegate", {"task": "look"}))
    play.due()
    [order] = play.nursery.orders
    child = order.child_key
    with play.store.write(OWNER) as tx:
        run = registry.save(tx, registry.get(tx, order.id), run_id="run-1", status=registry.Status.RUNNING)
    play.say(to=child)
    live = play.begin(child)
    assert live is not None
    play.call(live, *elect()[:1], **elect()[1])
    play.end(live)
    if how == "ended":
        with play.store.write(OWNER) as tx:
            registry.save(tx, run, status=registry.Status.ENDED, ended_at=tx.now)
    play.say(trigger="flush", to=child)
    flush = play.begin(child)
    assert flush is not None
    play.later(15)
    assert play.records(child)[0].failure == ("reaped" if reaped else None)
    play.end(flush)
    play.due()
    assert len(play.waiting_turns(child)) == (0 if reaped else 1)


def test_a_session_that_is_gone_ends_what_it_elected_with_a_notice(staged: Callable[..., Play]) -> None:
    play = staged()
    play.turn(elect("too late"))
    with play.store.write(OWNER) as tx:
        sessions.archive(tx, sessions.ensure(tx, KEY), cause="swept")
    play.later(15)
    assert play.records()[0].status is Status.FAILED
    [note] = play.waiting_notes()
    assert "its session is gone" in note.text


def test_a_turn_whose_mark_cannot_be_written_is_not_committed_and_comes_again(
    staged: Callable[..., Play], monkeypatch: pytest.MonkeyPatch
) -> None:
    play = staged()
    play.turn(elect())
    play.later(15)
    woken = play.begin()
    assert woken is not None
    whole = records.apply

    def refusing(tx: Tx, record: Record, event: Any) -> Record:
        if isinstance(event, Deliver):
            raise IllegalStep("someone else changed it")
        return whole(tx, record, event)

    monkeypatch.setattr(records, "apply", refusing)
    with pytest.raises(IllegalStep):
        play.end(woken)
    monkeypatch.undo()
    with play.store.read(OWNER) as tx:
        assert turns.get(tx, woken.turn.id).status is TurnStatus.RUNNING
    play.fail(woken)
    play.later(5)
    play.turn()
    assert play.records()[0].delivered


@pytest.mark.parametrize("chain_id", [None, "a chain that was begun anew since"])
def test_what_waited_before_there_were_chains_goes_on_in_one(tmp_path: Path, chain_id: str | None) -> None:
    """An upgraded home may hold elections whose session has begun another chain, or that no chain had yet."""
    store = Store(sqlite_url(tmp_path / "old.db"), clock=ManualClock())
    with store.migrating() as conn:
        migrations.walk(conn, "0013")
    with store.write(OWNER) as tx:
        now = int(tx.now)
        tx.conn.exec_driver_sql(
            "INSERT INTO sessions (id, key, audience, status, agent_id, created_at, updated_at,"
            " last_external_at)"
            f" VALUES ('s', 'agent:main:main', 'owner', 'active', 'main', {now}, {now}, {now})"
        )
        election = json.dumps({"election": {"text": "x", "turn_id": "t", "elected_at": now, "targets": []}})
        tx.conn.execute(
            sa.text(
                "INSERT INTO continuation_records (record_id, kind, owner_session_key, session_id, agent_id,"
                " status, phase, revision, notice_pending, created_at, updated_at, chain_id, due_at, state)"
                " VALUES ('r', 'work', 'agent:main:main', 's', 'main', 'queued', 'waiting', 1, false,"
                " :now, :now, :chain, :now, :state)"
            ),
            {"now": now, "chain": chain_id, "state": election},
        )
    assert migrations.migrate(store)
    with store.read(OWNER) as tx:
        [record] = records.live(tx, "agent:main:main")
        chain = chains.get(tx, record.chain_id or "")
    store.close()
    assert (chain.session_key, chain.steps, chain.state) == ("agent:main:main", 1, "live")
