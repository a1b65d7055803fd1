"""A group or a guest sees the board only from a space of its own."""

from __future__ import annotations

import pytest

from holdfast.agents.tools.board_reach import sees_board
from holdfast.board import DEFAULT_SPACE, spaces
from holdfast.log import OWNER, EntryDraft, Store, entries

GROUP = "agent:main:discord:group:zz"
MAIN = "agent:main:main"


def placed(store: Store, key: str, space: str | None) -> None:
    with store.write(OWNER) as tx:
        entries.append(tx, EntryDraft(content="hello", session_key=key, space_id=space))


@pytest.mark.parametrize(
    ("key", "owner", "chat_type", "seen"),
    [
        (MAIN, True, "direct", True),
        (MAIN, False, "direct", False),
        (GROUP, True, "group", False),
        (GROUP, False, "group", False),
    ],
)
def test_where_nobody_placed_a_conversation_only_the_owner_in_private_sees_the_board(
    store: Store, key: str, owner: bool, chat_type: str, seen: bool
) -> None:
    placed(store, key, None)
    with store.read(OWNER) as tx:
        assert sees_board(tx, key, owner=owner, chat_type=chat_type) is seen


def test_a_space_of_its_own_opens_the_board_and_the_default_one_does_not(store: Store) -> None:
    with store.write(OWNER) as tx:
        club = spaces.upsert(tx, "Club").space
    placed(store, GROUP, DEFAULT_SPACE)
    with store.read(OWNER) as tx:
        assert not sees_board(tx, GROUP, owner=False, chat_type="group")
    placed(store, GROUP, club.id)
    with store.read(OWNER) as tx:
        assert sees_board(tx, GROUP, owner=False, chat_type="group")
