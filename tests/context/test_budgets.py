"""How a window is shared out, from 2k to 1M tokens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.config import Compaction
from holdfast.config.agents import AgentDefaults
from holdfast.context import Budgets, chars
from holdfast.context.budget import is_near

WINDOWS = st.integers(2_048, 1_048_576)
SETTINGS = st.builds(
    lambda reserve, share, keep, soft: Compaction.model_validate(
        {
            "reserveTokens": reserve,
            "maxReserveShare": share,
            "keepRecentTokens": keep,
            "memoryFlush": {"softThresholdTokens": soft},
        }
    ),
    st.integers(0, 200_000),
    st.floats(0, 0.9),
    st.integers(0, 200_000),
    st.integers(0, 200_000),
)


@given(WINDOWS, SETTINGS)
def test_the_shares_of_a_window_never_exceed_it(window: int, settings: Compaction) -> None:
    found = Budgets.for_window(window, settings)
    fixed = found.tools + found.skills + found.files + found.daily + found.recall
    assert found.reserve + fixed + found.history == window
    assert min(found.tools, found.skills, found.files, found.daily, found.recall, found.reserve) >= 0


@given(WINDOWS, SETTINGS)
def test_history_and_an_answer_always_have_their_part(window: int, settings: Compaction) -> None:
    found = Budgets.for_window(window, settings)
    assert found.history >= 0.35 * found.prompt
    assert 128 <= found.answer <= window // 16
    assert found.keep_recent <= found.history
    assert found.flush_output <= window // 8


@given(WINDOWS, SETTINGS)
def test_lasting_notes_are_never_due_where_only_the_fixed_parts_are_there(
    window: int, settings: Compaction
) -> None:
    found = Budgets.for_window(window, settings)
    fixed = found.tools + found.skills + found.files + found.daily + found.recall
    assert fixed < found.flush_line <= found.prompt
    assert not is_near(settings, used=fixed, window=window)


@given(WINDOWS, WINDOWS)
def test_a_larger_window_gives_no_part_less(one: int, other: int) -> None:
    small, large = (Budgets.for_window(window, Compaction()) for window in sorted((one, other)))
    for name in ("prompt", "tools", "skills", "files", "daily", "recall", "keep_recent", "answer", "result"):
        assert getattr(small, name) <= getattr(large, name)


def test_what_the_config_says_holds_on_large_windows() -> None:
    defaults = AgentDefaults()
    for window in (128_000, 200_000, 1_000_000):
        found = Budgets.for_window(window, defaults.compaction)
        assert found.reserve == defaults.compaction.reserve_tokens == 16_384
        assert found.keep_recent == 20_000
        assert found.prompt - found.flush_line == 4_000
        assert chars(found.files) >= defaults.bootstrap_total_max_chars == 60_000
        assert chars(found.files) // 2 >= defaults.bootstrap_max_chars == 12_000
        assert chars(found.skills) >= 18_000
        assert found.may_list_all_tools
        assert not found.brief_tools


def test_a_model_without_room_for_tools_writes_no_lasting_notes() -> None:
    settings = Compaction()
    assert Budgets.for_window(2_048, settings).tools == 0
    assert not is_near(settings, used=2_000, window=2_048)
    assert is_near(settings, used=4_000, window=4_096)
