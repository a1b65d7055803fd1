"""The decisions of the lossless engine that need no store."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_compaction import HISTORY, _splits_a_pair

from holdfast.context import AssistantMessage, Message, SummaryMessage, ToolCall, ToolResult, UserMessage
from holdfast.context.compaction import boundaries
from holdfast.context.lossless import audit
from holdfast.context.lossless.passes import condensable, leaf_end, tail_start
from holdfast.context.lossless.projections import Item, fresh, with_condensed, with_leaf
from holdfast.context.lossless.recall import words_of
from holdfast.context.lossless.rendering import choose
from holdfast.context.lossless.settings import Settings
from holdfast.context.tokens import message_tokens
from holdfast.context.transcript import whole_pairs
from holdfast.errors import Conflict

SUMMARIES = st.lists(st.tuples(st.integers(0, 3), st.integers(10, 2000)), max_size=8)


def _shown(given: list[tuple[int, int]]) -> list[tuple[Item, SummaryMessage]]:
    ordered = sorted(given, key=lambda g: -g[0])
    return [
        (
            Item(session_id="s", first=n, until=n + 1, summary_id=f"sum_{n}", depth=depth, tokens=size),
            SummaryMessage(text=f"sum_{n} " + "s" * size, source=f"summary/sum_{n}"),
        )
        for n, (depth, size) in enumerate(ordered)
    ]


@given(SUMMARIES, HISTORY, st.integers(0, 12_000))
def test_what_is_chosen_fits_keeps_order_and_pairs(
    summaries: list[tuple[int, int]], history: list[Message], budget: int
) -> None:
    shown, raw = _shown(summaries), whole_pairs(history)
    chosen = choose(shown, raw, message_tokens, budget=budget)
    assert sum(map(message_tokens, chosen.messages)) == chosen.tokens
    assert chosen.tokens <= budget
    everything: list[Message] = [*(m for _, m in shown), *raw]
    kept = [m for m in chosen.messages if not m.source.startswith("gap/")]
    places = [next(i for i, one in enumerate(everything) if one is m) for m in kept]
    assert places == sorted(places)
    assert whole_pairs(chosen.messages) == chosen.messages
    assert chosen == choose(shown, raw, message_tokens, budget=budget)


def _line(number: int, size: int = 400) -> list[Message]:
    return [UserMessage(text=f"u{number} " + "x" * size), AssistantMessage(text=f"a{number} " + "y" * size)]


def test_the_middle_goes_first_and_the_deepest_summaries_and_newest_turn_last() -> None:
    shown = _shown([(2, 400), (1, 400), (0, 400), (0, 400)])
    raw = [m for n in range(20) for m in _line(n)]

    def names(budget: int) -> list[str]:
        chosen = choose(shown, raw, message_tokens, budget=budget).messages
        return [m.text.split()[0] for m in chosen if not m.source.startswith("gap/")]

    full = names(100_000)
    assert full[:5] == ["sum_0", "sum_1", "sum_2", "sum_3", "u0"]
    seen = [names(budget) for budget in range(4000, 0, -50)]
    assert all(left[:1] != ["sum_1"] for left in seen)
    first_gone = {name: next(i for i, left in enumerate(seen) if name not in left) for name in full}
    assert first_gone["u0"] <= first_gone["sum_2"] <= first_gone["sum_1"] <= first_gone["sum_0"]
    assert first_gone["u10"] <= first_gone["sum_0"] <= first_gone["u19"]


@given(HISTORY, st.integers(0, 8000), st.integers(1, 20))
def test_the_fresh_tail_has_the_newest_user_message_and_whole_pairs(
    messages: list[Message], tokens: int, most: int
) -> None:
    start = tail_start(messages, most=most, tokens=tokens)
    assert start in boundaries(messages)
    assert not _splits_a_pair(messages, start)
    spoken = [i for i, m in enumerate(messages) if isinstance(m, UserMessage)]
    if spoken:
        assert start <= spoken[-1]


@given(HISTORY, st.integers(1, 8000), st.booleans())
def test_a_leaf_ends_between_exchanges(messages: list[Message], tokens: int, complete: bool) -> None:
    end = leaf_end(messages, tokens=tokens, complete=complete)
    assert 0 <= end <= len(messages)
    if end:
        assert end in boundaries(messages)
        assert not _splits_a_pair(messages, end)
    if messages and complete:
        assert end


def test_a_recent_call_keeps_its_place_for_the_result_to_come() -> None:
    waiting = AssistantMessage(text="", calls=(ToolCall("c", "exec", {}),))
    later: list[Message] = [UserMessage(text="meanwhile " * 50), AssistantMessage(text="yes")]
    messages: list[Message] = [UserMessage(text="go"), waiting, *later]
    assert tail_start(messages, most=64, tokens=10) == 1
    assert leaf_end(messages[:2], tokens=10_000, complete=False) == 1


def test_an_item_can_only_be_replaced_where_it_is() -> None:
    known = fresh("s")
    [own] = known.items
    leaf = Item(session_id="s", first=0, until=7, summary_id="sum_a", tokens=10)
    changed = with_leaf(known, own, 7, leaf)
    assert [(i.first, i.until) for i in changed.items] == [(0, 7), (7, None)]
    with pytest.raises(Conflict):
        with_leaf(changed, own, 7, leaf)
    with pytest.raises(Conflict):
        with_condensed(known, [leaf], leaf)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(50, 3000)), max_size=30), st.booleans())
def test_what_is_condensed_is_a_run_of_one_depth_and_shrinks_the_list(
    found: list[tuple[int, int]], over: bool
) -> None:
    items = [
        Item(session_id="s", first=n, until=n + 1, summary_id=f"sum_{n}", depth=d, tokens=t)
        for n, (d, t) in enumerate(sorted(found, key=lambda f: -f[0]))
    ]
    known = fresh("s", items)
    run = condensable(known, Settings(), budget=40_000, over=over)
    if run:
        assert len(run) >= 2
        assert len({i.depth for i in run}) == 1
        start = known.items.index(run[0])
        assert known.items[start : start + len(run)] == run
    elif over:
        assert all(a.depth != b.depth for a, b in itertools.pairwise(items))


SAID = (
    "Please rotate the key before Friday. We decided to use Postgres instead of MySQL. "
    "MAX_RETRY_COUNT is 7, see src/app/config.py and https://example.org/a?b=1, commit 3f9a2bc4d1, "
    "ticket OPS-4411, limit 512 MB, 15 % of 30 s, price $1,299.50, mail ops@example.org."
)


def test_the_audit_finds_names_figures_asks_decisions_and_file_work() -> None:
    call = ToolCall("1", "file_write", {"path": "docs/plan.md"})
    said: list[Message] = [
        UserMessage(text=SAID),
        AssistantMessage(text="I edited src/app/main.py. Renamed old.txt.", calls=(call,)),
        ToolResult(text="wrote /var/lib/app/data.bin", call_id="1", name="file_write"),
    ]
    keeps = audit.keeps_of(said)
    names = ["MAX_RETRY_COUNT", "src/app/config.py", "https://example.org/a?b=1", "3f9a2bc4d1", "OPS-4411"]
    assert set(keeps["names"]) >= {*names, "ops@example.org", "/var/lib/app/data.bin"}
    assert set(keeps["figures"]) >= {"512 MB", "15 %", "30 s", "$1,299.50"}
    assert keeps["asks"] == ["Please rotate the key before Friday."]
    assert keeps["decisions"] == ["We decided to use Postgres instead of MySQL."]
    assert set(keeps["files"]) >= {"edited src/app/main.py", "file_write docs/plan.md", "renamed old.txt"}
    text = audit.listed(audit.missing("We talked.", keeps), most_tokens=1000)
    assert all(word in text for kind in audit.KINDS for word in keeps[kind])
    assert audit.listed(audit.missing(text, keeps), most_tokens=1000) == ""
    assert text == audit.listed(audit.missing("We talked.", keeps), most_tokens=1000)


def test_where_there_is_no_room_the_list_says_how_much_it_leaves_out() -> None:
    keeps = {"names": [f"SOME_NAME_{n}" for n in range(100)]}
    text = audit.listed(keeps, most_tokens=50)
    assert "more: context_search" in text
    assert len(text) < 400


def test_common_words_are_searched_for_only_if_there_are_no_others() -> None:
    assert words_of("What is the PORT_LIMIT, of src/a.py?") == ["port_limit", "src/a.py"]
    assert words_of("what is it") == ["what", "is", "it"]
