"""The decisions of continuation, as pure functions."""

from __future__ import annotations

import math
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agents.subagents import Run
from holdfast.clock import Millis
from holdfast.config import Compaction
from holdfast.config.agents import Continuation
from holdfast.context import Budgets, Pressure, how_full, needs_compaction
from holdfast.continuation import compaction, delegates, limits, tokens
from holdfast.continuation.limits import Budget
from holdfast.continuation.records import SessionState
from holdfast.continuation.state import Election, Kind, Phase, Record, Status
from holdfast.continuation.tokens import DelegateToken, WorkToken
from holdfast.log import FOR_OWNER, Chain
from holdfast.traces import is_traceparent

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SETTINGS = Continuation(enabled=True)


@pytest.mark.parametrize(
    ("text", "left", "token"),
    [
        ("Done for now. CONTINUE_WORK", "Done for now.", WorkToken()),
        ("CONTINUE_WORK:30 \n", "", WorkToken(30_000)),
        ("CONTINUE_WORK:0", "", WorkToken(0)),
        ("a [[CONTINUE_DELEGATE: look it up]]", "a", DelegateToken("look it up")),
        ("[[ CONTINUE_DELEGATE:do x +90s|silent]]", "", DelegateToken("do x", 90_000, "silent")),
        ("[[CONTINUE_DELEGATE: a | b | normal]]", "", DelegateToken("a | b")),
        ("[[CONTINUE_DELEGATE: a | silent | b]]", "", DelegateToken("a | silent | b")),
        ("[[CONTINUE_DELEGATE: silent]]", "", DelegateToken("silent")),
        ("[[CONTINUE_DELEGATE: x | model=a/b]]", "", DelegateToken("x", model="a/b")),
        ("[[CONTINUE_DELEGATE: x | fanout=all]]", "", DelegateToken("x", fanout="all")),
        (f"[[CONTINUE_DELEGATE: x | traceparent={TRACE}]]", "", DelegateToken("x", traceparent=TRACE)),
        (
            "[[CONTINUE_DELEGATE: x | targets=agent:a:main,agent:b:main | post-compaction]]",
            "",
            DelegateToken("x", mode="post-compaction", targets=("agent:a:main", "agent:b:main")),
        ),
        (
            "[[CONTINUE_DELEGATE: x | targets=agent:a:main|thread:7,agent:b:main | silent]]",
            "",
            DelegateToken("x", mode="silent", targets=("agent:a:main|thread:7", "agent:b:main")),
        ),
        ("[[CONTINUE_DELEGATE: one]] then [[CONTINUE_DELEGATE: two]]", None, DelegateToken("two")),
    ],
)
def test_a_token_at_the_very_end_is_read_and_taken_out(text: str, left: str | None, token: object) -> None:
    parsed = tokens.parse(text)
    assert parsed.token == token
    assert parsed.text == (text.rpartition("[[")[0].rstrip() if left is None else left)


@pytest.mark.parametrize(
    "text",
    [
        "CONTINUE_WORK later",
        "> CONTINUE_WORK",
        "He said:\n> and then\n> [[CONTINUE_DELEGATE: x]]",
        "```\nCONTINUE_WORK",
        "~~~\n[[CONTINUE_DELEGATE: x]]",
        "    CONTINUE_WORK",
        "\tCONTINUE_WORK",
        "`and so CONTINUE_WORK",
        '"CONTINUE_WORK',
        "see:[[CONTINUE_DELEGATE: x]]",
        "`CONTINUE_WORK`",
        "DISCONTINUE_WORK",
        "CONTINUE_WORK:soon",
        "[[CONTINUE_DELEGATE: x]] and more",
        "[[CONTINUE_DELEGATE:  ]]",
        "[[CONTINUE_DELEGATE: x | fanout=some]]",
        "[[CONTINUE_DELEGATE: x | fanout=all | target=agent:a:main]]",
        "[[CONTINUE_DELEGATE: x | target=]]",
        "[[CONTINUE_DELEGATE: x | silent | normal]]",
        "[[CONTINUE_DELEGATE: x | traceparent=1]]",
        "[[CONTINUE_DELEGATE: x]]]",
        "[[continue_delegate: x]]",
        "[[ELSE: x]]",
    ],
)
def test_what_is_not_well_formed_stays_in_the_text(text: str) -> None:
    assert tokens.parse(text) == tokens.Parsed(text)


_PIECES = st.sampled_from(
    [
        "[[",
        "]]",
        "]",
        "CONTINUE_DELEGATE:",
        "CONTINUE_WORK",
        ":5",
        " +5s",
        "|",
        "silent",
        "target=",
        " ",
        "\n",
        "x",
    ]
)
_LIKE = re.compile(r"\[\[\s*CONTINUE_DELEGATE:\s*((?:(?!\]\])[\s\S])+?)\s*\]\]\s*\Z")
_LIKE_WORK = re.compile(r"(?<!\S)CONTINUE_WORK(?::([0-9]+))?\s*\Z")
_SHOWS = re.compile(r"[`~>\t]| {4}")


@given(st.lists(_PIECES | st.text(string.printable, max_size=4), max_size=30).map("".join))
def test_junk_is_never_more_than_the_grammar_allows(text: str) -> None:
    parsed = tokens.parse(text)
    if parsed.token is None:
        assert parsed.text == text
        assert _LIKE_WORK.search(text) is None or _SHOWS.search(text)
        return
    assert text.startswith(parsed.text)
    assert len(parsed.text) < len(text)
    like = _LIKE if isinstance(parsed.token, DelegateToken) else _LIKE_WORK
    assert like.search(text)
    if isinstance(parsed.token, DelegateToken):
        assert parsed.token.task.strip() == parsed.token.task != ""
        assert "]]" not in parsed.token.task


@given(
    st.text().filter(lambda text: "```" not in text and "~~~" not in text),
    st.text(min_size=1, max_size=50, alphabet=string.ascii_letters + " "),
    st.integers(0, 9999),
)
def test_a_written_token_is_read_back(before: str, task: str, wait: int) -> None:
    task = task.strip() or "x"
    parsed = tokens.parse(f"{before}\n[[CONTINUE_DELEGATE: {task} +{wait}s | silent-wake]]")
    assert parsed.token == DelegateToken(task, wait * 1000, "silent-wake")
    assert parsed.text == f"{before}\n".rstrip()


def test_a_long_task_is_cut_and_a_flood_of_brackets_is_read_in_no_time() -> None:
    parsed = tokens.parse("[[CONTINUE_DELEGATE: " + "x" * 9_000 + "]]")
    assert isinstance(parsed.token, DelegateToken)
    assert len(parsed.token.task) == 4_096
    for flood in (
        "[[CONTINUE_DELEGATE: " * 20_000 + "]]",
        "[[" * 100_000 + "]]",
        "CONTINUE_WORK:" + "9" * 99_999,
    ):
        tokens.parse(flood)


@given(st.none() | st.integers(-10, 10**9), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_delay_is_nothing_or_within_its_bounds(asked: int | None, low: int, more: int) -> None:
    settings = Continuation(min_delay_ms=low, max_delay_ms=low + more + 1)
    for delay in (limits.work_delay(asked, settings), limits.delegate_delay(asked, settings)):
        assert delay == 0 or settings.min_delay_ms <= delay <= settings.max_delay_ms
    if asked is not None and settings.min_delay_ms <= asked <= settings.max_delay_ms:
        assert limits.delegate_delay(asked, settings) == max(asked, 0)


@given(st.integers(0, 10_000))
def test_waits_for_a_busy_session_grow_up_to_the_ceiling(skips: int) -> None:
    wait = limits.busy_until(0, skips, SETTINGS, event=False)
    assert 1_000 <= wait <= SETTINGS.max_delay_ms
    assert wait <= limits.busy_until(0, skips + 1, SETTINGS, event=False)
    assert limits.busy_until(0, skips, SETTINGS, event=True) == SETTINGS.max_delay_ms


@pytest.mark.parametrize(
    ("threshold", "early", "expected"),
    [
        (0.8, 0.3125, [25, 80, 90, 95]),
        (0.8, 0, [80, 90, 95]),
        (0.9, 0.5, [45, 90, 95]),
        (0.93, 0, [93, 95]),
        (0.95, 0, [95]),
        (1.0, 0, [100]),
    ],
)
def test_the_bands_follow_from_the_threshold(threshold: float, early: float, expected: list[int]) -> None:
    assert [band for _, band in compaction.bands(threshold, early)] == expected


@given(st.integers(0, 200_000), st.integers(0, 100_000), st.none() | st.sampled_from([25, 80, 90, 95]))
def test_a_band_is_told_only_when_it_is_another_than_the_last(
    used: int, window: int, last: int | None
) -> None:
    band = compaction.band_of(Pressure(used, window), SETTINGS)
    assert (band is None) == (window == 0 or used == 0 or used / window < 0.25)
    assert compaction.new_band(Pressure(used, window), last, SETTINGS) == (None if band == last else band)
    off = Continuation(context_pressure_threshold=None)
    assert compaction.band_of(Pressure(used, window), off) is None


@given(st.integers(1_000, 2_000_000), st.integers(0, 200_000), st.floats(0.0, 0.9))
def test_every_band_is_reached_before_history_is_compacted(window: int, tokens: int, most: float) -> None:
    settings = Compaction(reserve_tokens=tokens, max_reserve_share=most)
    room = Budgets.for_window(window, settings).prompt
    for share, band in compaction.bands(0.8, 0.3125):
        used = math.ceil(share * room) + 1
        assert compaction.band_of(how_full(settings, window, counted=used), SETTINGS) == band
        assert not needs_compaction(settings, used=used, window=window)


def test_texts_grow_more_urgent_with_the_band() -> None:
    assert "Consider staging" in compaction.pressure_text(80, Pressure(80, 100))
    assert "First stage" in compaction.pressure_text(90, Pressure(90, 100))
    assert "COMPACTION IMMINENT" in compaction.pressure_text(95, Pressure(95, 100))


def a_run(ended_at: int | None, timeout_seconds: int) -> Run:
    return Run(
        id="r",
        spawn_key="spawn:r",
        child_key="agent:main:subagent:r",
        child_session_id="s",
        agent_id="main",
        requester_key="agent:main:main",
        requester_agent="main",
        task="look",
        depth=1,
        mode="run",
        cleanup="keep",
        context="isolated",
        expects=True,
        timeout_seconds=timeout_seconds,
        owner="p",
        origin={},
        created_at=Millis(0),
        updated_at=Millis(0),
        ended_at=None if ended_at is None else Millis(ended_at),
    )


@given(
    st.none() | st.just("run"),
    st.none() | st.builds(a_run, st.none() | st.integers(0, 10**8), st.integers(0, 10**5)),
    st.integers(0, 10**9),
    st.none() | st.integers(1, 10**8),
)
def test_only_a_parent_that_is_over_for_certain_makes_an_orphan(
    parent: str | None, run: Run | None, now: int, cutoff: int | None
) -> None:
    reaped = limits.is_orphan(parent, run, now, cutoff)
    if parent is None or run is None:
        assert not reaped
    elif run.ended_at is not None:
        assert reaped
    else:
        assert not reaped or now > max(cutoff or 7_200_000, run.timeout_seconds * 1000)


SETTING = st.builds(
    Continuation,
    max_chain_length=st.integers(1, 20),
    cost_cap_tokens=st.integers(0, 50),
    cost_cap_dollars=st.floats(0, 2),
    max_chain_minutes=st.integers(0, 5),
)


@given(
    st.lists(SETTING, min_size=1, max_size=3),
    st.integers(0, 25),
    st.integers(0, 60),
    st.floats(0, 3),
    st.integers(0, 600_000),
    st.integers(0, 5),
)
def test_a_chain_is_bounded_by_the_narrowest_of_all_caps_and_by_nothing_else(
    given_: list[Continuation], steps: int, tokens_: int, cost: float, age: int, ahead: int
) -> None:
    chain = Chain(
        id="c", session_key="k", agent_id="main", audience=FOR_OWNER, trigger="user",
        started_at=Millis(0), updated_at=Millis(0), steps=steps, tokens=tokens_, cost=cost,
    )  # fmt: skip
    over = limits.chain_cap(chain, Budget.of(*given_), age, ahead=ahead)
    allowed = all(
        steps + ahead < one.max_chain_length
        and (not one.cost_cap_tokens or tokens_ <= one.cost_cap_tokens)
        and (not one.cost_cap_dollars or cost <= one.cost_cap_dollars)
        and (not one.max_chain_minutes or age <= one.max_chain_minutes * 60_000)
        for one in given_
    )
    assert (over is None) == allowed


def work(id_: str, *, elected: int, due: int, status: Status = Status.QUEUED, hop: int = 1) -> Record:
    election = Election(text="x", turn_id="t", elected_at=elected)
    more = {"phase": Phase.WAITING, "due_at": due, "status": status, "hop": hop}
    stamps = {"created_at": Millis(0), "updated_at": Millis(0)}
    return Record(
        id=id_,
        kind=Kind.WORK,
        owner="k",
        session_id="s",
        agent_id="main",
        election=election,
        **stamps,
        **more,
    )  # type: ignore[arg-type]


@given(
    st.lists(
        st.tuples(st.integers(0, 100), st.integers(0, 3_000_000), st.sampled_from(list(Status))), max_size=8
    ),
    st.integers(0, 4_000_000),
)
def test_the_newest_stays_and_what_runs_is_never_superseded(
    given_: list[tuple[int, int, Status]], now: int
) -> None:
    found = [work(str(n), elected=e, due=d, status=s) for n, (e, d, s) in enumerate(given_)]
    dropped = limits.overdue(found, now, 300_000)
    queued = [r for r in found if r.status is Status.QUEUED]
    assert all(r.status is Status.QUEUED and now - (r.due_at or 0) > 600_000 for r in dropped)
    if queued:
        assert len(dropped) < len(queued)
        assert max(queued, key=lambda r: (r.election.elected_at, r.hop, r.id)) not in dropped


def test_the_guard_counts_only_turns_that_did_nothing_but_elect() -> None:
    chain = SessionState(session_id="s", session_key="k")
    assert limits.is_idle_turn("continuation", "NO_REPLY", ["continue_work", "message"], rearmed=True)
    for turn in (
        ("user", "", [], True),
        ("continuation", "hello", [], True),
        ("continuation", "", ["exec"], True),
    ):
        assert not limits.is_idle_turn(turn[0], turn[1], turn[2], rearmed=turn[3])  # type: ignore[arg-type]
    for n in range(4):
        assert not limits.is_idling(chain, n * 1000)
        chain = limits.with_idle_turn(chain, True, n * 1000)
    assert limits.is_idling(chain, 4_000)
    assert not limits.is_idling(chain, 4_000 + 300_001)
    assert limits.with_idle_turn(chain, True, 3_000 + 300_001).idle_turns == 1
    assert limits.with_idle_turn(chain, False, 5_000).idle_turns == 0


@given(st.lists(st.sampled_from(["me", "you", "them"]), max_size=3), st.sampled_from([None, "tree", "all"]))
def test_disabled_only_the_own_session_and_its_line_may_be_named(keys: list[str], fanout: str | None) -> None:
    crossing = fanout == "all" or bool(set(keys) - {"me"})
    assert (delegates.target_refusal("me", keys, fanout, SETTINGS) is not None) == crossing
    opened = Continuation(cross_session_targeting="enabled")
    assert delegates.target_refusal("me", keys, fanout, opened) is None


def test_a_traceparent_names_a_trace_and_a_span() -> None:
    assert is_traceparent(TRACE)
    for wrong in (
        TRACE.upper(),
        TRACE[:-1],
        "ff" + TRACE[2:],
        TRACE.replace("00f067aa0ba902b7", "0" * 16),
        "",
    ):
        assert not is_traceparent(wrong)


def test_the_caps_waits_and_pauses_are_those_of_the_config() -> None:
    chain = Chain(
        id="c", session_key="k", agent_id="main", audience=FOR_OWNER, trigger="user",
        started_at=Millis(0), updated_at=Millis(0), cost=0.75,
    )  # fmt: skip
    own = Continuation.model_validate({"costCapDollars": 0.5, "busySkipBackoff": {"ceilingMs": 7_000}})
    capped = limits.chain_cap(chain, Budget.of(own), 0)
    assert capped is not None
    assert "$0.5 is the most" in capped.text
    assert limits.busy_until(0, 50, own, event=False) == 7_000
    patient = Continuation.model_validate({"compactionCooldownMinutes": 10})
    state = SessionState(session_id="s", session_key="k", compactions=(0,))
    early = compaction.guard(Pressure(90, 100), state, 6 * 60_000, patient)
    assert early is not None
    assert early.guard == "rate_limit"
