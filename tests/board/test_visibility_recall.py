"""Search, context and map show what the model of the board says, and never what is hidden."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from board_world import PEOPLE, SESSIONS, World, asks, build, people, plans
from holdfast.board.context import ContextAsk
from holdfast.board.graph import MapAsk
from holdfast.board.search import SearchAsk
from holdfast.board.visibility import Sight
from holdfast.runtime import Holdfast, open_home

MANY = 800
_session = st.none() | st.sampled_from(SESSIONS)


def test_every_recall_agrees_with_the_model_on_both_engines(store_url: str, tmp_path: Path) -> None:
    """The examples share one board, so that it grows, and changes under what was indexed before."""
    world = World()
    count = 0
    with open_home(tmp_path / "home", store_url=store_url) as hold:

        @given(plan=plans, questions=st.lists(st.tuples(asks, _session, people), min_size=1, max_size=3))
        @settings(max_examples=6)
        def grow(plan: dict[str, Any], questions: list[Any]) -> None:
            nonlocal count
            count += 1
            build(hold.store, world, plan, f"board {count}")
            for ask, session, who in questions:
                agree(hold, world, ask, session, who)

        grow()


def agree(hold: Holdfast, world: World, ask: Any, session: str | None, who: str) -> None:
    source, wanted, own = ask
    if own is not None and source is not None and source not in own:
        return
    limits = {"allowed_ids": wanted, "principal_spaces": own}
    sight = Sight(reader=PEOPLE[who][0], space_id=source, session_key=session, **limits)
    looked_from = source or (world.told_by(session) if session else None)
    allowed = world.allowed(looked_from, wanted, own)
    shown = {kind: world.seen(kind, allowed, who) for kind in ("topic", "task", "entry")}
    _search(hold, sight, shown)
    waiting = set() if session is None else world.waiting_in(who, session, allowed)
    _context(hold, world, sight, shown, waiting)
    if session is not None:
        told = hold.board.continuity.build(ContextAsk(sight=sight, mode="cheap")).data["routingMemory"]
        assert [one["topicId"] for one in told] == world.about(who, session, allowed)[-4:]
    made = hold.board.map.build(MapAsk(sight=sight))
    named = {id_ for id_ in world.topics if any(id_ in world.entries[e] for e in shown["entry"])}
    assert {node["id"] for node in made["nodes"] if node["type"] == "topic"} == named & shown["topic"]
    assert made["stats"]["entries"] == len(shown["entry"])


def _search(hold: Holdfast, sight: Sight, shown: dict[str, set[str]]) -> None:
    ask = SearchAsk(q="text of a board task", sight=sight, topics=MANY, tasks=MANY, logs=MANY, nearest=True)
    found = hold.board.search.run(ask)
    assert {one.item.id for one in found.logs} == shown["entry"]
    assert {one.item.id for one in found.topics} == shown["topic"]
    assert {one.item.id for one in found.tasks} == shown["task"]


def _context(
    hold: Holdfast, world: World, sight: Sight, shown: dict[str, set[str]], waiting: set[str]
) -> None:
    ask = ContextAsk(
        q="text of a board task", sight=sight, mode="full", working_set_limit=40, timeline_limit=40
    )
    made = hold.board.continuity.build(ask)
    assert not made.late
    told = made.data
    working = {one["id"] for one in told["workingSet"]["topics"]}
    assert working == shown["topic"] or len(working) == 40
    spoken = {id_ for _, key, id_ in world.said if key == sight.session_key and id_ in shown["entry"]}
    spoken |= waiting
    assert {one["id"] for one in told["timeline"]} <= spoken
    assert len(told["timeline"]) == min(40, len(spoken))
    text = json.dumps(told) + made.block
    hidden = {*world.topics, *world.tasks, *world.entries} - set().union(*shown.values(), waiting)
    assert not [id_ for id_ in hidden if f'"id": "{id_}"' in text]
