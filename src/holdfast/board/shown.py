"""An entry as searches and timelines show it: by the head of its text, without what nobody reads there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

from holdfast.board.reads import plain

HEAD_CHARS: Final = 2_000
SHORT: Final = (
    f"position, id, type, substr(content, 1, {HEAD_CHARS}), status, created_at, role, session_key, agent_id,"
    " agent_label, summary, space_id, topic_id, task_id, code, source, audience"
)


class Shown(NamedTuple):
    """A row of the columns `SHORT` under their names; hundreds are read for one search, so nothing is made of
    it. Type and status are equal to those of the enums, and `stored_source` is as the driver gives it.
    """

    position: int
    id: str
    type: str
    content: str
    status: str
    created_at: int
    role: str | None
    session_key: str | None
    agent_id: str | None
    agent_label: str | None
    summary: str | None
    space_id: str | None
    topic_id: str | None
    task_id: str | None
    code: str | None
    stored_source: Any
    audience: str

    @property
    def source(self) -> Mapping[str, Any] | None:
        found: Mapping[str, Any] | None = plain(self.stored_source)
        return found


class Showable(Protocol):
    """What is shown of an entry, be it a whole one or a `Shown`."""

    @property
    def id(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def content(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def created_at(self) -> int: ...
    @property
    def role(self) -> str | None: ...
    @property
    def session_key(self) -> str | None: ...
    @property
    def agent_id(self) -> str | None: ...
    @property
    def agent_label(self) -> str | None: ...
    @property
    def summary(self) -> str | None: ...
    @property
    def space_id(self) -> str | None: ...
    @property
    def topic_id(self) -> str | None: ...
    @property
    def task_id(self) -> str | None: ...
    @property
    def code(self) -> str | None: ...
    @property
    def source(self) -> Mapping[str, Any] | None: ...
