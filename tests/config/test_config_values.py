"""Durations, sizes, zones, times and ids as they are written in the file."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.config import Duration, InvalidConfig, parse_config, parse_duration, parse_size
from holdfast.config.values import MS_PER_UNIT

UNITS = st.sampled_from(sorted(MS_PER_UNIT))


@given(st.integers(0, 5_000), UNITS)
def test_a_number_with_its_unit_is_that_many_milliseconds(number: int, unit: str) -> None:
    assert parse_duration(f"{number}{unit}") == number * MS_PER_UNIT[unit]


@given(st.integers(0, 10**12))
def test_a_duration_is_written_so_that_it_reads_back(ms: int) -> None:
    assert parse_duration(str(Duration(ms))) == ms


@given(st.lists(st.tuples(st.integers(0, 500), UNITS), min_size=1, max_size=4))
def test_terms_add_up(terms: list[tuple[int, str]]) -> None:
    text = " ".join(f"{number}{unit}" for number, unit in terms)
    assert parse_duration(text) == sum(n * MS_PER_UNIT[unit] for n, unit in terms)


@given(st.text(max_size=12))
def test_any_other_text_is_refused_with_a_value_error_only(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert parse_duration(text) >= 0


@pytest.mark.parametrize("text", ["", "m", "5", "-5m", "5 minutes", "1h30", "0.5ms", "9999999w"])
def test_a_duration_that_is_not_one_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [("512b", 512), ("100KB", 102_400), ("1 MiB", 1024**2), ("1.5k", 1536), ("2G", 2 * 1024**3)],
)
def test_sizes_are_multiples_of_1024(text: str, size: int) -> None:
    assert parse_size(text) == size


def test_a_key_that_names_its_unit_takes_a_number_or_a_duration() -> None:
    number = parse_config("{memory: {qmd: {limits: {timeoutMs: 2000}}}}")
    text = parse_config('{memory: {qmd: {limits: {timeoutMs: "2s"}}}}')
    assert number.memory.qmd.limits.timeout_ms == text.memory.qmd.limits.timeout_ms == 2000


def test_a_key_that_names_its_unit_refuses_a_part_of_it() -> None:
    with pytest.raises(InvalidConfig, match=r"session\.reset\.idleMinutes: expected a whole number"):
        parse_config('{session: {reset: {mode: "idle", idleMinutes: "90s"}}}')


def test_a_bare_number_has_the_unit_that_the_key_says() -> None:
    config = parse_config("{heartbeat: {every: 45}, contextPruning: {ttl: 5}}")
    assert config.agents.defaults.heartbeat.every == 45 * 60_000
    assert config.agents.defaults.context_pruning.ttl == 5 * 60_000


def test_a_key_of_a_byte_size_takes_text() -> None:
    assert parse_config('{gateway: {limits: {entryBytes: "2MiB"}}}').gateway.limits.entry_bytes == (
        2 * 1024**2
    )


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{heartbeat: {activeHours: {start: "9:00"}}}', "heartbeat.activeHours.start"),
        ('{heartbeat: {activeHours: {start: "25:00"}}}', "heartbeat.activeHours.start"),
        ('{heartbeat: {activeHours: {start: "09:00", end: "09:00"}}}', "heartbeat.activeHours"),
        ('{heartbeat: {activeHours: {timezone: "Mars/Base"}}}', "heartbeat.activeHours.timezone"),
        ('{heartbeat: {activeHours: {timezone: "../etc"}}}', "heartbeat.activeHours.timezone"),
        ("{heartbeat: {every: -1}}", "heartbeat.every"),
        ("{heartbeat: {every: true}}", "heartbeat.every"),
        ('{heartbeat: {enabled: "yes"}}', "heartbeat.enabled"),
        ('{agents: {list: [{id: "Bad Id"}]}}', "agents.list[0].id"),
        ("{gateway: {port: 70000}}", "gateway.port"),
        ("{gateway: {port: true}}", "gateway.port"),
        ("{memory: {search: {vectorWeight: 0, textWeight: 0}}}", "memory.search"),
        ("{memory: {search: {vectorWeight: NaN}}}", "memory.search.vectorWeight"),
        ("{memory: {search: {chunking: {tokens: 64, overlap: 64}}}}", "memory.search.chunking"),
        ("{contextPruning: {softTrim: {maxChars: 100}}}", "contextPruning.softTrim"),
        ("{continuation: {busySkipBackoff: {factor: 1}}}", "continuation.busySkipBackoff.factor"),
        ("{continuation: {contextPressureThreshold: 0}}", "continuation.contextPressureThreshold"),
        ("{continuation: {minDelayMs: 9, maxDelayMs: 8}}", "continuation"),
        ('{board: {supervision: {ladder: ["3m", "1m"]}}}', "board.supervision"),
        ("{board: {contextMaxChars: 399}}", "board.contextMaxChars"),
        ('{agents: {defaults: {userTimezone: "user"}}}', "agents.defaults.userTimezone"),
        ('{bindings: [{agentId: "main", match: {channel: "x", peer: {}}}]}', "bindings[0].match.peer"),
    ],
)
def test_a_value_out_of_bounds_is_named_by_its_path(text: str, where: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse_config(text)
    assert [problem.path for problem in caught.value.problems] == [where]
    assert "expected" in caught.value.problems[0].message
