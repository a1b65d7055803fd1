"""Whatever is changed in the folder of an index: no search fails, and after mending all is found again."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import append, examples
from holdfast.config.memory import MemoryConfig
from holdfast.errors import Unavailable
from holdfast.log import Store, open_store, sqlite_url
from holdfast.memory import LogFollower, Memory, open_memory
from holdfast.memory.damage import FOLDER, MOST_FILES, Aside
from holdfast.memory.documents import Document, Filter
from holdfast.memory.embedders.static import StaticEmbedder
from holdfast.memory.embedding import EmbedderChain
from holdfast.memory.engine.embedded import EmbeddedIndex

WORDS = [f"heron{n}" for n in range(12)]
FILE = "# Keys\n\nThe boathouse key hangs behind the clock.\n"


@dataclass(frozen=True)
class Filled:
    """An index over a log and a file as it lies on the disk, and how to open a copy of it."""

    root: Path
    store: Store
    static: StaticEmbedder

    @contextmanager
    def opened(self, index: Path) -> Iterator[Memory]:
        chain, config = EmbedderChain([], self.static), MemoryConfig()
        memory = open_memory(
            index,
            chain=chain,
            workspace=lambda _: self.root / "workspace",
            config=lambda _: config,
            follow=lambda ix, cat: LogFollower(self.store, ix, cat, chain.base),
            store=self.store,
        )
        try:
            yield memory
        finally:
            memory.close()


@pytest.fixture(scope="module", params=["closed", "killed"])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """As a stop leaves it, with all in segments; and as a kill does, with some in the journal only."""
    root = tmp_path_factory.mktemp("filled")
    (root / "workspace").mkdir()
    (root / "workspace" / "MEMORY.md").write_text(FILE)
    store = open_store(sqlite_url(root / "holdfast.db"))
    made = Filled(root, store, StaticEmbedder())
    for word in WORDS[:8]:
        append(store, f"the {word} stands by the weir", role="user", session_key="agent:main:main")
    with made.opened(root / "live") as memory:
        memory.follow()
    with made.opened(root / "live") as memory:
        for word in WORDS[8:]:
            append(store, f"the {word} stands by the weir", role="user", session_key="agent:main:main")
        memory.follow()
        memory.update("main")
        if request.param == "killed":
            shutil.copytree(root / "live", root / "index")
    if request.param == "closed":
        shutil.copytree(root / "live", root / "index")
    yield made
    store.close()


def mended(memory: Memory) -> None:
    while memory.mend(5.0, thorough=True) or memory.health.healing:
        memory.follow()
    memory.update("main")
    memory.follow()


def finds_all(memory: Memory) -> None:
    for word in WORDS:
        hits = memory.find(word).hits
        assert any(word in hit.snippet for hit in hits), word
    assert [hit.path for hit in memory.find("boathouse key").hits][:1] == ["MEMORY.md"]
    everything = memory.index.view(Filter())
    assert everything.count == len(WORDS) + 1
    assert everything.with_vector(memory.chain.base.id.fingerprint) == len(WORDS) + 1


@settings(max_examples=examples(25))
@given(data=st.data())
def test_any_change_to_any_file_is_survived_and_mended(filled: Filled, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as place:
        index = shutil.copytree(filled.root / "index", Path(place) / "index")
        path = data.draw(st.sampled_from(sorted(p for p in index.iterdir() if p.is_file())))
        harm = data.draw(st.sampled_from(("flip", "flip", "flip", "truncate", "remove", "fill")))
        raw = bytearray(path.read_bytes())
        at = data.draw(st.integers(0, max(0, len(raw) - 1)))
        if harm == "flip" and raw:
            raw[at] ^= data.draw(st.integers(1, 255))
        elif harm == "truncate":
            del raw[at:]
        elif harm == "fill":
            raw[at : at + 512] = bytes([data.draw(st.integers(0, 255))]) * len(raw[at : at + 512])
        path.write_bytes(raw)
        if harm == "remove":
            path.unlink()
        with filled.opened(index) as memory:
            for word in WORDS[::5]:
                memory.find(word)
            mended(memory)
            finds_all(memory)
        with filled.opened(index) as memory:
            finds_all(memory)


def test_a_search_over_damaged_postings_goes_on_without_them_and_says_so(tmp_path: Path) -> None:
    index = EmbeddedIndex(tmp_path / "index", seal_rows=64)
    index.upsert([Document(f"d{n}", f"kelp word{n}") for n in range(64)])
    index.settle()
    (segment,) = (tmp_path / "index").glob("*.seg")
    index.close()
    raw = bytearray(segment.read_bytes())
    raw[-64:] = b"\xff" * 64
    segment.write_bytes(raw)
    index = EmbeddedIndex(tmp_path / "index", seal_rows=64)
    assert index.view(Filter()).count == 0
    assert index.health.healing
    assert "made again" in (index.health.told or "")
    while index.mend(1.0):
        pass
    assert (index.view(Filter()).count, index.health.healing, index.health.told) == (64, False, None)
    assert [one.why for one in index.health.damaged] != []
    index.close()


def test_what_was_set_aside_is_kept_within_a_bound(tmp_path: Path) -> None:
    aside = Aside(tmp_path)
    for number in range(MOST_FILES + 5):
        (tmp_path / f"{number:08d}.seg").write_bytes(b"x")
        aside.take([tmp_path / f"{number:08d}.seg"], "a test")
    kept = aside.listing()
    assert len(kept) == MOST_FILES == len(list((tmp_path / FOLDER).iterdir()))
    assert kept[-1].endswith(f"{MOST_FILES + 4:08d}.seg")


def test_an_error_that_no_damage_explains_is_raised_as_it_came(filled: Filled, tmp_path: Path) -> None:
    with filled.opened(shutil.copytree(filled.root / "index", tmp_path / "index")) as memory:
        with pytest.raises(ZeroDivisionError):
            memory.whole(lambda: 1 // 0)
        with pytest.raises(Unavailable):
            memory.whole(_full_disk)
        assert memory.health.damaged == ()


def _full_disk() -> None:
    raise Unavailable("the disk is full", code="index_unavailable")


def test_an_index_that_was_closed_under_a_late_worker_is_not_taken_for_damaged(
    filled: Filled, tmp_path: Path
) -> None:
    """A gateway stops while the log is followed: what comes too late fails, and all files stay."""
    index = tmp_path / "index"
    shutil.copytree(filled.root / "index", index)
    with filled.opened(index) as memory:
        memory.follow()
    for late in (memory.follow, lambda: memory.update("main"), lambda: memory.catalogue.fact("index")):
        with pytest.raises(Unavailable):
            late()
    assert not (index / FOLDER).exists()
