"""Any history of writes, crashes and rebuilds leaves an embedded index that answers like the plain model."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis.stateful import rule
from index_machine import IndexMachine
from index_model import FINGERPRINT

from holdfast.memory.engine.embedded import EmbeddedIndex


class EmbeddedMachine(IndexMachine):
    """A crash opens the files as they lie there."""

    index: EmbeddedIndex

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="holdfast-index-"))
        self.generation = 0

    def opened(self) -> EmbeddedIndex:
        return EmbeddedIndex(self.root / str(self.generation), seal_rows=8)

    def cleared(self) -> None:
        shutil.rmtree(self.root)

    @rule()
    def compact(self) -> None:
        self.index.compact()

    @rule()
    def crash(self) -> None:
        """The files as they are at this moment, without a close, are opened elsewhere."""
        old = self.root / str(self.generation)
        self.generation += 1
        shutil.copytree(old, self.root / str(self.generation))
        self.index.close()
        shutil.rmtree(old)
        self.index = self.opened()

    @rule()
    def lose_a_segment(self) -> None:
        """A damaged segment is made again from the stored documents; its vectors may be gone."""
        self.index.close()
        for path in sorted((self.root / str(self.generation)).glob("*.seg"))[:1]:
            path.write_bytes(path.read_bytes()[:-1])
        self.index = self.opened()
        lacking = {d.id for d in self.index.without_vector(FINGERPRINT, 1_000)}
        for id_ in lacking:
            self.model.vectors.pop(id_, None)


EmbeddedMachine.TestCase.settings = settings(
    max_examples=30,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestAnyHistory = EmbeddedMachine.TestCase
