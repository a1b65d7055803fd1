"""Any history of writes, as rules that hold for every engine; each engine adds its own accidents."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from index_model import FINGERPRINT, Model, assert_same, move, vector_of

from holdfast.memory.documents import SOURCES, Document, Filter
from holdfast.memory.engine import Index
from holdfast.memory.text import terms

WORDS = ("kelp", "tide", "anchor", "harbour", "Straße", "parse_json", "the", "running", "zebra")
IDS = tuple(f"d{n}" for n in range(14))
NAMES = ("red", "green", "blue")

names = st.one_of(st.none(), st.sampled_from(NAMES))
spaces = st.frozensets(st.sampled_from(NAMES), max_size=2)
ids = st.lists(st.sampled_from(IDS), max_size=5)


@st.composite
def documents(draw: st.DrawFn) -> Document:
    id_ = draw(st.sampled_from(IDS))
    return Document(
        id=id_,
        text=" ".join(draw(st.lists(st.sampled_from(WORDS), max_size=6))),
        source=draw(st.sampled_from(SOURCES)),
        audience=draw(st.sampled_from(NAMES)),
        agent=draw(names),
        spaces=draw(spaces),
        collection=draw(names),
        topic=draw(names),
        task=draw(names),
        session=draw(names),
        speaker=draw(names),
        writer=draw(names),
        at=draw(st.integers(0, 5)),
        curated=draw(st.booleans()),
        thread=draw(names),
        ordinal=int(id_[1:]),
        position=draw(st.one_of(st.none(), st.integers(1, 100))),
        payload=draw(st.dictionaries(st.sampled_from(NAMES), st.integers(), max_size=1)),
    )


def some(values: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    return st.frozensets(st.sampled_from(values), max_size=2)


FIELDS: dict[str, st.SearchStrategy[Any]] = {
    **{field: some(NAMES) for field in ("audiences", "agents", "spaces", "collections", "topics", "tasks")},
    **{field: some(NAMES) for field in ("sessions", "speakers", "writers")},
    "sources": some(SOURCES),
    "curated": st.booleans(),
    "since": st.integers(0, 5),
    "until": st.integers(0, 6),
    "chatter_since": st.integers(0, 5),
    "exclude": st.frozensets(st.sampled_from(IDS), max_size=2),
}
filters = st.lists(st.sampled_from(sorted(FIELDS)), max_size=2, unique=True).flatmap(
    lambda fields: st.builds(Filter, **{field: FIELDS[field] for field in fields})
)
ALWAYS = (
    Filter(),
    Filter(spaces=frozenset({"red"})),
    Filter(audiences=frozenset({"red", "blue"})),
    Filter(topics=frozenset({"green"}), exclude=frozenset({"d1", "d2"})),
)


class IndexMachine(RuleBasedStateMachine):
    """Writes go to the index and to the model, and both must answer alike."""

    index: Index

    @initialize()
    def start(self) -> None:
        self.index = self.opened()
        self.model = Model()

    @abstractmethod
    def opened(self) -> Index:
        """The index as it lies there now."""

    def cleared(self) -> None:
        """Take away what the run has left."""

    @rule(batch=st.lists(documents(), min_size=1, max_size=6), embedded=st.booleans())
    def upsert(self, batch: list[Document], embedded: bool) -> None:
        vectors = {FINGERPRINT: np.array([vector_of(d.text) for d in batch])} if embedded else None
        self.index.upsert(batch, vectors)
        self.model.upsert(batch, embedded=embedded)

    @rule(chosen=ids)
    def delete(self, chosen: list[str]) -> None:
        self.index.delete(chosen)
        self.model.delete(chosen)

    @rule(chosen=ids, to=spaces, topic=names)
    def move(self, chosen: list[str], to: frozenset[str], topic: str | None) -> None:
        move(self.index, chosen, spaces=to, topic=topic)
        self.model.move(chosen, spaces=to, topic=topic)

    @rule(batch=st.lists(documents(), max_size=6))
    def move_each_elsewhere(self, batch: list[Document]) -> None:
        there = {d.id for d in batch} & self.model.documents.keys()
        assert self.index.move(batch) == len(there)
        for one in batch:
            lies = {"audience": one.audience, "spaces": one.spaces, "topic": one.topic, "task": one.task}
            self.model.move([one.id], **lies)

    @rule(chosen=ids, audience=st.sampled_from(NAMES))
    def share(self, chosen: list[str], audience: str) -> None:
        move(self.index, chosen, audience=audience)
        self.model.move(chosen, audience=audience)

    @rule(chosen=ids, task=names)
    def change_task(self, chosen: list[str], task: str | None) -> None:
        move(self.index, chosen, task=task)
        self.model.move(chosen, task=task)

    @rule(limit=st.integers(1, 4))
    def embed_what_lacks_a_vector(self, limit: int) -> None:
        lacking = self.index.without_vector(FINGERPRINT, limit)
        assert len(lacking) == min(limit, len(self.model.documents) - len(self.model.vectors))
        if lacking:
            vectors = np.array([vector_of(document.text) for document in lacking])
            self.index.put_vectors(FINGERPRINT, [d.id for d in lacking], vectors)
        self.model.vectors.update({d.id: vector_of(d.text) for d in lacking})

    @rule()
    def flush(self) -> None:
        self.index.flush()

    @rule()
    def rebuild(self) -> None:
        self.index.rebuild()

    @rule()
    def reopen(self) -> None:
        self.index.close()
        self.index = self.opened()

    @rule(wanted=filters, words=st.lists(st.sampled_from(WORDS), max_size=3))
    def ask(self, wanted: Filter, words: list[str]) -> None:
        assert_same(self.index, self.model, wanted, terms(" ".join(words)))

    @invariant()
    def all_is_there(self) -> None:
        if not hasattr(self, "index"):
            return
        assert self.index.count == len(self.model.documents)
        assert self.index.position == self.model.position
        for wanted in ALWAYS:
            assert_same(self.index, self.model, wanted, ["kelp", "tide"])

    def teardown(self) -> None:
        if hasattr(self, "index"):
            self.index.close()
            self.cleared()
