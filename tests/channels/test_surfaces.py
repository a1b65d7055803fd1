"""A surface, its address and its session key name each other."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from holdfast.channels import Surface
from holdfast.channels.records import bind_session, bound_session, release
from holdfast.errors import InvalidInput
from holdfast.log import OWNER, Store, sessions

NAMES = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,20}\Z")
IDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=30)
KINDS = st.sampled_from(["dm", "group", "channel"])


@settings(max_examples=50)
@given(NAMES, KINDS, IDS, st.none() | IDS, st.none() | NAMES)
def test_a_surface_comes_back_from_its_address_and_its_key(
    channel: str, kind: str, peer: str, thread: str | None, account: str | None
) -> None:
    try:
        surface = Surface(channel, kind, peer, thread, account)  # type: ignore[arg-type]
    except InvalidInput:
        assume(False)
        raise
    assert Surface.parse(surface.address) == surface
    found = Surface.of_key(str(surface.key("main")))
    assert found == (surface if kind == "dm" else Surface(channel, surface.kind, peer, thread))


@settings(max_examples=50)
@given(NAMES, KINDS, IDS, NAMES, KINDS, IDS)
def test_two_surfaces_never_share_a_session(a: str, ka: str, pa: str, b: str, kb: str, pb: str) -> None:
    try:
        one, other = Surface(a, ka, pa), Surface(b, kb, pb)  # type: ignore[arg-type]
    except InvalidInput:
        assume(False)
        raise
    assert (one == other) == (one.key("main") == other.key("main")) == (one.address == other.address)


def test_a_target_without_a_kind_is_a_channel() -> None:
    assert Surface.parse("discord:42") == Surface("discord", "channel", "42")
    assert Surface.parse("slack/work:dm:U7:thread:9.1") == Surface("slack", "dm", "U7", "9.1", "work")
    assert Surface.parse("slack:channel:C1:thread:2").parent == Surface("slack", "channel", "C1")


@pytest.mark.parametrize(
    "text", ["", "discord", "discord:", "dm:42", "a b:dm:1", "x:dm:1:thread:", "x/:dm:1"]
)
def test_what_names_no_surface_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        Surface.parse(text)


@pytest.mark.parametrize("key", ["agent:main:main", "agent:main:subagent:x", "agent:main:dm:alice"])
def test_sessions_that_people_see_nowhere_have_no_surface(key: str) -> None:
    assert Surface.of_key(key) is None


def test_a_surface_has_one_session_at_a_time_and_only_while_that_is_there(store: Store) -> None:
    thread = Surface("slack", "channel", "C1", "9")
    first, second = "agent:main:subagent:a", "agent:main:subagent:b"
    with store.write(OWNER) as tx:
        sessions.ensure(tx, first)
        child = sessions.ensure(tx, second)
        bind_session(tx, thread, first)
        assert bound_session(tx, thread) == first
        bind_session(tx, thread, second)
        assert bound_session(tx, thread) == second
        sessions.archive(tx, child, cause="test")
        assert bound_session(tx, thread) is None
        bind_session(tx, thread, first)
        release(tx, thread)
        assert bound_session(tx, thread) is None
