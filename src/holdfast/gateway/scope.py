"""What a request asks to look from, joined with what its caller may see: the board's view, over HTTP."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

from fastapi import Depends, Query

from holdfast.board import View, parse_allowed, resolve
from holdfast.board.context_sight import Sight
from holdfast.board.visibility import spaces_of_entries, spaces_of_tasks, spaces_of_topics
from holdfast.errors import Forbidden, NotFound
from holdfast.gateway.access import sees_change
from holdfast.gateway.tokens import Principal
from holdfast.gateway.views import Views
from holdfast.log import OWNER, Change, Entry, EntryDraft, Tx, entries

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
        return resolve(
            tx,
            space_id=self.space_id,
            session_key=self.session_key,
            allowed_ids=parse_allowed(self.allowed),
            principal_spaces=caller.spaces,
        )


async def _placed(space_id: SpaceParam = None, allowed: AllowedParam = None) -> Ask:
    return Ask(space_id, allowed)


async def _asked(
    space_id: SpaceParam = None, allowed: AllowedParam = None, session_key: SessionParam = None
) -> Ask:
    return Ask(space_id, allowed, session_key)


EVERYWHERE: Final = Ask()

Placed = Annotated[Ask, Depends(_placed)]
Asked = Annotated[Ask, Depends(_asked)]


def sight_of(ask: Ask, caller: Principal) -> Sight:
    """The same for what is kept by where one looks from: a value, not yet a view."""
    return Sight(
        reader=replace(OWNER, agents=caller.agents),  # gateway: the caller's reader
        space_id=ask.space_id,
        session_key=ask.session_key,
        allowed_ids=parse_allowed(ask.allowed),
        principal_spaces=caller.spaces,
    )


def own_view(caller: Principal) -> View:
    """All that the caller may see."""
    return View(caller.spaces)


def shows(tx: Tx, caller: Principal, view: View, entry: Entry) -> bool:
    if entry.deleted_at is not None or not caller.may_see_agent(entry.agent_id):
        return False
    return view.spaces is None or view.sees(spaces_of_entries(tx, [entry])[entry.id])


def seen_entry(tx: Tx, caller: Principal, id_: str, view: View | None = None) -> Entry:
    """The entry, unless it is deleted or hidden: both look like nothing there."""
    entry = entries.get(tx, id_)
    if not shows(tx, caller, own_view(caller) if view is None else view, entry):
        raise NotFound(f"no entry {id_[:80]!r}", code="unknown_entry")
    return entry


def require_places(tx: Tx, caller: Principal, drafts: Sequence[EntryDraft]) -> None:
    """A caller limited to spaces writes only to places that it sees, and names at least one."""
    if caller.spaces is None:
        return
    by_topic = spaces_of_topics(tx, (draft.topic_id for draft in drafts))
    by_task = spaces_of_tasks(tx, (draft.task_id for draft in drafts))
    none: frozenset[str] = frozenset()
    for draft in drafts:
        scope = (draft.source or {}).get("boardScopeSpaceId")
        named = [frozenset((one,)) for one in (draft.space_id, scope) if isinstance(one, str)]
        named += [by_topic.get(draft.topic_id, none)] if draft.topic_id is not None else []
        named += [by_task.get(draft.task_id, none)] if draft.task_id is not None else []
        if not named or not all(own_view(caller).sees(place) for place in named):
            raise outside()


def require_spaces(caller: Principal, space_ids: Iterable[str]) -> None:
    """A caller limited to spaces puts nothing into others."""
    if caller.spaces is not None and not caller.spaces.issuperset(space_ids):
        raise outside()


def outside() -> Forbidden:
    return Forbidden(
        "this token may write only to its own spaces",
        code="space_forbidden",
        hint="Send a spaceId that it may see.",
    )


def visible_changes(
    tx: Tx, views: Views, caller: Principal, ask: Ask, batch: Sequence[Change]
) -> list[tuple[Change, Mapping[str, Any] | None]]:
    """The changes that the caller may see from where it looks, each with its data as it is now."""
    data = views.of(tx, batch)
    view = ask.view(tx, caller)
    if view.spaces is None and not caller.limited:
        return [(change, data[change.seq]) for change in batch]
    places = _places(tx, batch, data)
    return [
        (change, _own(caller, change, data[change.seq]))
        for change in batch
        if sees_change(caller, change, data[change.seq], view, places.get(change.seq))
    ]


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
