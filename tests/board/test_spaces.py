from __future__ import annotations

import pytest

from builders import rows
from holdfast.board import DEFAULT_SPACE, spaces, topics
from holdfast.board.spaces import MAX_SPACES, Space
from holdfast.errors import Conflict, InvalidInput, NotFound
from holdfast.log import OWNER, Store, changes


def make(store: Store, name: str, **options: object) -> Space:
    with store.write(OWNER) as tx:
        return spaces.upsert(tx, name, **options).space  # type: ignore[arg-type]


def sees(store: Store, space_id: str) -> set[str]:
    with store.read(OWNER) as tx:
        return set(spaces.baseline(tx, space_id))


def test_a_name_and_a_tag_mean_the_same_space(store: Store) -> None:
    made = make(store, "Beta")
    with store.write(OWNER) as tx:
        topic = topics.upsert(tx, "x", tags=["space:Beta"]).topic
        again = spaces.upsert(tx, "  beta ")
    assert (made.id, topic.space_id) == ("space-beta", "space-beta")
    assert (again.created, again.space.id) == (False, "space-beta")
    with store.read(OWNER) as tx:
        assert [space.id for space in spaces.listing(tx)] == ["space-beta", DEFAULT_SPACE]


def test_the_default_space_is_there_before_anyone_writes_and_reading_writes_nothing(store: Store) -> None:
    with store.read(OWNER) as tx:
        assert [space.id for space in spaces.listing(tx)] == [DEFAULT_SPACE]
        assert spaces.get(tx, DEFAULT_SPACE).name == "Default"
        assert spaces.require(tx, DEFAULT_SPACE) == DEFAULT_SPACE
    assert rows(store, "SELECT count(*) FROM spaces") == [(0,)]


def test_a_space_that_is_not_there_is_said_to_be_unknown(store: Store) -> None:
    with store.read(OWNER) as tx, pytest.raises(NotFound, match="no space 'space-nowhere'"):
        spaces.get(tx, "space-nowhere")
    with store.write(OWNER) as tx, pytest.raises(NotFound, match="space-nowhere"):
        spaces.connect(tx, DEFAULT_SPACE, {"space-nowhere": True})


def test_the_wish_of_a_space_seeds_edges_and_nothing_more(store: Store) -> None:
    make(store, "Alpha")
    make(store, "Beta")
    assert sees(store, "space-beta") == {"space-beta", "space-alpha", DEFAULT_SPACE}
    with store.write(OWNER) as tx:
        spaces.connect(tx, "space-alpha", {}, default_visible=False)
    assert "space-alpha" in sees(store, "space-beta")
    make(store, "Gamma")
    assert sees(store, "space-gamma") == {"space-gamma", "space-beta", DEFAULT_SPACE}
    make(store, "Hidden", default_visible=False)
    assert "space-hidden" not in sees(store, "space-beta")
    assert "space-beta" in sees(store, "space-hidden")


def test_an_edge_is_one_way_and_false_hides(store: Store) -> None:
    make(store, "Alpha")
    make(store, "Beta")
    with store.write(OWNER) as tx:
        changed = spaces.connect(tx, "space-beta", {"space-alpha": False, "space-beta": False})
    assert changed.connectivity == {"space-alpha": False, DEFAULT_SPACE: True}
    assert sees(store, "space-beta") == {"space-beta", DEFAULT_SPACE}
    assert "space-beta" in sees(store, "space-alpha")


def test_names_colours_and_ids_are_checked(store: Store) -> None:
    for name in ("", "   ", "---", "x" * 121):
        with store.write(OWNER) as tx, pytest.raises(InvalidInput):
            spaces.upsert(tx, name)
    with store.write(OWNER) as tx, pytest.raises(InvalidInput, match="not a colour"):
        spaces.upsert(tx, "ok", color="red")
    assert make(store, "Work stuff", id_="space-work", color="#4EA1FF").id == "space-work"
    assert make(store, "Work", id_="space-work").color == "#4EA1FF"


def test_each_change_of_a_space_is_told(store: Store) -> None:
    make(store, "Alpha")
    make(store, "Alpha", color="#000000")
    make(store, "Alpha", color="#000000")
    with store.read(OWNER) as tx:
        told = [(c.type, c.entity_id) for c in changes.since(tx, 0)]
    assert told == [("space.upserted", DEFAULT_SPACE)] + [("space.upserted", "space-alpha")] * 2


def test_there_is_an_end_to_spaces(sqlite_store: Store) -> None:
    with sqlite_store.write(OWNER) as tx:
        spaces.upsert(tx, "one")
        many = [
            {"id": f"space-x{n}", "name": "x", "default_visible": False, "created_at": 0, "updated_at": 0}
            for n in range(MAX_SPACES)
        ]
        tx.conn.execute(spaces.spaces.insert(), many)
        with pytest.raises(Conflict, match="spaces already"):
            spaces.upsert(tx, "one more")
