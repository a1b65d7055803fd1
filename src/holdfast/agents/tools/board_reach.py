"""Who may look at the board from a session: its owner in private, or whoever is in a space of its own.

Everything that nobody placed lies in the default space, private talk included. So a group, or someone who is
not the owner, sees the board only from a space that a person gave the conversation.
"""

from __future__ import annotations

from typing import Final

from holdfast.board.tags import DEFAULT_SPACE
from holdfast.board.visibility import source_space
from holdfast.log import Tx

_SHARED: Final = frozenset(("group", "channel"))


def sees_board(tx: Tx, session_key: str, *, owner: bool, chat_type: str) -> bool:
    if owner and chat_type not in _SHARED:
        return True
    return source_space(tx, None, session_key) not in (None, DEFAULT_SPACE)
