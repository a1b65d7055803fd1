"""What a request asks to look from, joined with what its caller may see: the board's view, over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import Depends, Query

from holdfast.board import View, drafts, parse_allowed, resolve, spaces, tasks, topics
from holdfast.board.visibility import Sight, spaces_of_entries
from holdfast.gateway.board_wire import draft_out, space_out, task_out, topic_out
from holdfast.gateway.tokens import Principal
from holdfast.gateway.wire import entry_out, session_out, turn_out
from holdfast.log import FOR_OWNER, Change, Tx, entries, outbox, sessions, turns

if TYPE_CHECKING:
    from holdfast.gateway.context import Gateway


Look = Callable[[Tx, Sequence[str]], Mapping[str, Mapping[str, Any]]]


class Views:
    """One look-up for each kind of entity; a room that adds a kind adds its own."""

    def __init__(self) -> None:
        self._looks: dict[str, Look] = {
            "log": _entries,
            "session": _sessions,
            "turn": _turns,
            "delivery": _deliveries,
            "space": _spaces,
            "topic": _topics,
            "task": _tasks,
            "draft": _drafts,
        }

    def register(self, kind: str, look: Look) -> None:
        self._looks[kind] = look

    def of(self, tx: Tx, changes: Sequence[Change]) -> dict[int, Mapping[str, Any] | None]:
        """The data of each change, by its number; a bounded number of queries for the whole batch."""
        wanted: dict[str, list[str]] = {}
        for change in changes:
            if change.payload is None:
                wanted.setdefault(change.type.partition(".")[0], []).append(change.entity_id)
        found = {kind: self._looks[kind](tx, ids) for kind, ids in wanted.items() if kind in self._looks}
        deleted = _authors(tx, [c.entity_id for c in changes if c.type == "log.deleted"])
        return {
            c.seq: {**deleted.get(c.entity_id, {}), **c.payload}
            if c.payload is not None
            else found.get(c.type.partition(".")[0], {}).get(c.entity_id)
            for c in changes
        }


def _entries(tx: Tx, ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    return {e.id: entry_out(e) for e in entries.get_many(tx, ids) if e.deleted_at is None}


def _authors(tx: Tx, ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    """Whose the deleted entries were, so that a reader limited to agents learns of its own."""
    return {e.id: {"agentId": e.agent_id} for e in entries.get_many(tx, ids)} if ids else {}


def _sessions(tx: Tx, ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    return {s.id: session_out(s) for s in sessions.get_many(tx, ids)}


def _turns(tx: Tx, ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    found = turns.get_many(tx, ids)
    agents = {s.id: s.agent_id for s in sessions.get_many(tx, sorted({t.session_id for t in found}))}
    return {t.id: turn_out(t, agents.get(t.session_id)) for t in found}


def _deliveries(tx: Tx, ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    return {
        d.id: {"id": d.id, "kind": d.kind, "target": d.target, "status": d.status, "attempts": d.attempts}
        for d in outbox.get_many(tx, ids)
    }


def _spaces(tx: Tx, ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    return {space.id: space_out(space) for space in spaces.get_many(tx, ids)}


def _topics(tx: Tx, ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    return {topic.id: topic_out(topic) for topic in topics.get_many(tx, ids)}


def _tasks(tx: Tx, ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    return {task.id: task_out(task) for task in tasks.get_many(tx, ids)}


def _drafts(tx: Tx, keys: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    found = (drafts.get(tx, key) for key in dict.fromkeys(keys))
    return {draft.key: draft_out(draft) for draft in found if draft is not None}


SpaceParam = Annotated[
    str | None, Query(alias="spaceId", max_length=256, description="The space that is looked from.")
]
AllowedParam = Annotated[
    str | None, Query(alias="allowedSpaceIds", max_length=65_536, description="Space ids by comma.")
]
SessionParam = Annotated[
    str | None, Query(alias="sessionKey", max_length=1024, description="Tells the space if none is given.")
]


@dataclass(frozen=True, slots=True)
class Ask:
    """From where a caller asks to look."""

    space_id: str | None = None
    allowed: str | None = None
    session_key: str | None = None

    def view(self, tx: Tx, caller: Principal) -> View:
        """What is shown of what the caller may read: all, unless the request looks from somewhere."""
        return resolve(
            tx,
            space_id=self.space_id,
            session_key=self.session_key,
            allowed_ids=parse_allowed(self.allowed),
            principal_spaces=self.limit(caller),
        )

    def limit(self, caller: Principal) -> frozenset[str] | None:
        """The spaces beyond which the caller looks from nowhere."""
        looks = (self.space_id, self.session_key, self.allowed) != (None, None, None)
        return caller.spaces if looks else None


async def _placed(space_id: SpaceParam = None, allowed: AllowedParam = None) -> Ask:
    return Ask(space_id, allowed)


async def _asked(
    space_id: SpaceParam = None, allowed: AllowedParam = None, session_key: SessionParam = None
) -> Ask:
    return Ask(space_id, allowed, session_key)


EVERYWHERE: Final = Ask()

Placed = Annotated[Ask, Depends(_placed)]
Asked = Annotated[Ask, Depends(_asked)]


def sight_of(here: Gateway, caller: Principal, ask: Ask) -> Sight:
    """The same for what is kept by where one looks from: a value, not yet a view."""
    return Sight(
        reader=here.reader_for(caller, ask.session_key),
        space_id=ask.space_id,
        session_key=ask.session_key,
        allowed_ids=parse_allowed(ask.allowed),
        principal_spaces=ask.limit(caller),
    )


def visible_changes(
    tx: Tx, views: Views, caller: Principal, ask: Ask, batch: Sequence[Change]
) -> list[tuple[Change, Mapping[str, Any] | None]]:
    """The changes that the caller may see from where it looks, each with its data as it is now.

    What may not be read is not told, not even that it was there.
    """
    data = views.of(tx, batch)
    view = ask.view(tx, caller)
    if view.spaces is None and not caller.limited:
        return [(change, data[change.seq]) for change in batch]
    places = _places(tx, batch, data)
    return [
        (change, _own(caller, change, told))
        for change in batch
        if (told := data[change.seq]) is not None
        and _may_be_told(caller, change, told)
        and (change.seq not in places or view.sees(places[change.seq]))
    ]


def _may_be_told(caller: Principal, change: Change, data: Mapping[str, Any]) -> bool:
    """Whether the caller may know of a change.

    What was looked up, the caller may read. What is gone travels in the change itself, with who could read
    it. All else is about an agent's runtime, which lies in no space, or about the whole home.
    """
    kind = change.type.partition(".")[0]
    if kind in ("session", "turn", "chain") or not caller.limited:
        return True
    if kind == "approval" and caller.user_id is not None:
        return caller.name in data.get("deciders", ())
    if kind == "space":
        return caller.may_see_space(change.entity_id)
    if kind in ("log", "topic", "task"):
        audience = str(data.get("audience") or FOR_OWNER)
        return change.payload is None or caller.reader.may_read_of(audience, data.get("agentId"))
    return caller.spaces is None and caller.may_see_agent(data.get("agentId"))


def _own(caller: Principal, change: Change, data: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """A space is told of without the spaces that the caller may not know of."""
    if data is None or caller.spaces is None or not change.type.startswith("space."):
        return data
    edges = {to: on for to, on in data["connectivity"].items() if to in caller.spaces}
    return {**data, "connectivity": edges}


def _places(
    tx: Tx, batch: Sequence[Change], data: Mapping[int, Mapping[str, Any] | None]
) -> dict[int, frozenset[str]]:
    """The spaces of each change that is about something on the board, by its number."""
    ids = sorted({c.entity_id for c in batch if c.type.startswith("log.")})
    rows = entries.get_many(tx, ids) if ids else []
    of_entry = spaces_of_entries(tx, rows)
    found: dict[int, frozenset[str]] = {}
    for change in batch:
        kind = change.type.partition(".")[0]
        if kind == "log":
            found[change.seq] = of_entry.get(change.entity_id, frozenset())
        elif kind == "space":
            found[change.seq] = frozenset((change.entity_id,))
        elif kind in ("topic", "task"):
            found[change.seq] = frozenset((data[change.seq] or {}).get("spaceIds", ()))
    return found
