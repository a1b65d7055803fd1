"""Any history of writes, crashes and rebuilds leaves an embedded index that answers like the plain model."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from index_machine import ALWAYS, IDS, IndexMachine, documents, ids, names, spaces
from index_model import FINGERPRINT, Model, assert_same, move, vector_of

from builders import examples
from holdfast.memory.documents import Document
from holdfast.memory.engine.embedded import EmbeddedIndex
from holdfast.memory.engine.merging import Merge
from holdfast.memory.engine.reading import IndexReader


class EmbeddedMachine(IndexMachine):
    """A crash opens the files as they lie there. Merges are written and finished between other steps."""

    index: EmbeddedIndex

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="holdfast-index-"))
        self.generation = 0
        self.merges: list[tuple[Merge, Callable[[Merge], None]]] = []
        self.follower: IndexReader | None = None
        self.steps = 0

    @invariant()
    def whoever_follows_finds_the_same(self) -> None:
        """Another process that looks now and then, however much happened since it last did."""
        self.steps += 1
        if not hasattr(self, "index") or self.steps % 2:
            return
        if self.follower is None:
            self.follower = IndexReader(self.root / str(self.generation))
        assert self.follower.count == len(self.model.documents)
        assert self.follower.position == self.model.position
        assert self.follower.identity == self.index.identity
        for wanted in ALWAYS:
            assert_same(self.follower, self.model, wanted, ["kelp", "tide"])

    def leave(self) -> None:
        if self.follower is not None:
            self.follower.close()
            self.follower = None

    def opened(self) -> EmbeddedIndex:
        self.merges.clear()
        folder = self.root / str(self.generation)
        return EmbeddedIndex(folder, seal_rows=3, beside=lambda *merge: self.merges.append(merge))

    @precondition(lambda self: self.merges and not self.merges[-1][0].is_written)
    @rule()
    def write_a_merge(self) -> None:
        self.merges[-1][0].write()

    @precondition(lambda self: self.merges)
    @rule()
    def finish_a_merge(self) -> None:
        merge, finish = self.merges.pop()
        if not merge.is_written:
            merge.write()
        finish(merge)

    def cleared(self) -> None:
        self.leave()
        shutil.rmtree(self.root)

    @rule()
    def tidy(self) -> None:
        self.index.tidy()

    @rule()
    def crash(self) -> None:
        """The files as they are at this moment, without a close, are opened elsewhere."""
        self.leave()
        old = self.root / str(self.generation)
        self.generation += 1
        shutil.copytree(old, self.root / str(self.generation))
        self.index.close()
        shutil.rmtree(old)
        self.index = self.opened()

    @rule()
    def lose_a_segment(self) -> None:
        """A damaged segment is made again from the stored documents; its vectors may be gone."""
        self.leave()
        self.index.close()
        for path in sorted((self.root / str(self.generation)).glob("*.seg"))[:1]:
            path.write_bytes(path.read_bytes()[:-1])
        self.index = self.opened()
        while self.index.mend(1.0):
            pass
        lacking = {d.id for d in self.index.without_vector(FINGERPRINT, 1_000)}
        for id_ in lacking:
            self.model.vectors.pop(id_, None)


EmbeddedMachine.TestCase.settings = settings(
    max_examples=examples(20),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestAnyHistory = EmbeddedMachine.TestCase


@dataclass
class Writing:
    """An index and its model, written alike; merges wait until they are told to go on."""

    folder: Path
    merges: list[tuple[Merge, Callable[[Merge], None]]] = field(default_factory=list)
    model: Model = field(default_factory=Model)

    def __post_init__(self) -> None:
        self.index = self.opened(self.folder)

    def opened(self, folder: Path) -> EmbeddedIndex:
        return EmbeddedIndex(folder, seal_rows=4, beside=lambda *merge: self.merges.append(merge))

    def put(self, batch: list[Document], embedded: bool) -> None:
        vectors = {FINGERPRINT: np.array([vector_of(d.text) for d in batch])} if embedded else None
        self.index.upsert(batch, vectors)
        self.model.upsert(batch, embedded=embedded)

    def delete(self, chosen: list[str]) -> None:
        self.index.delete(chosen)
        self.model.delete(chosen)

    def move(self, chosen: list[str], to: frozenset[str], topic: str | None) -> None:
        move(self.index, chosen, spaces=to, topic=topic)
        self.model.move(chosen, spaces=to, topic=topic)

    def embed(self, limit: int) -> None:
        lacking = self.index.without_vector(FINGERPRINT, limit)
        if lacking:
            vectors = np.array([vector_of(document.text) for document in lacking])
            self.index.put_vectors(FINGERPRINT, [d.id for d in lacking], vectors)
        self.model.vectors.update({d.id: vector_of(d.text) for d in lacking})

    def check(self, index: EmbeddedIndex) -> None:
        assert index.count == len(self.model.documents)
        for wanted in ALWAYS:
            assert_same(index, self.model, wanted, ["kelp", "tide"])


Step = Callable[[Writing], None]
steps: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        st.builds(
            lambda batch, embedded: lambda w: w.put(batch, embedded),
            st.lists(documents(), min_size=1, max_size=3),
            st.booleans(),
        ),
        st.builds(lambda chosen: lambda w: w.delete(chosen), ids),
        st.builds(lambda chosen, to, topic: lambda w: w.move(chosen, to, topic), ids, spaces, names),
        st.builds(lambda limit: lambda w: w.embed(limit), st.integers(1, 9)),
        st.just(lambda w: w.index.flush()),
    ),
    max_size=4,
)


@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(while_written=steps, before_it_is_taken=steps, afterwards=steps)
def test_what_happens_during_a_merge_is_in_its_outcome(
    while_written: list[Step], before_it_is_taken: list[Step], afterwards: list[Step]
) -> None:
    with tempfile.TemporaryDirectory() as root:
        desk = Writing(Path(root) / "first")
        for half in (IDS[:7], IDS[7:]):
            desk.put([Document(id_, "kelp", spaces=frozenset({"red"}), thread="t") for id_ in half], False)
        merge, finish = desk.merges.pop()
        for step in while_written:
            step(desk)
        merge.write()
        for step in before_it_is_taken:
            step(desk)
        shutil.copytree(desk.folder, Path(root) / "crashed before")
        finish(merge)
        desk.check(desk.index)
        crashed = desk.opened(Path(root) / "crashed before")
        desk.check(crashed)
        crashed.close()
        for step in afterwards:
            step(desk)
        shutil.copytree(desk.folder, Path(root) / "crashed after")
        desk.index.close()
        for folder in (desk.folder, Path(root) / "crashed after"):
            index = desk.opened(folder)
            desk.check(index)
            index.close()
