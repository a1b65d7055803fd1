"""Questions that peers fail, each with what must be found."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from conftest_memory import Desk

from holdfast.clock import Millis
from holdfast.log import OWNER, EntryDraft, entries
from holdfast.memory.documents import Document, Filter
from holdfast.memory.embedders.base import Vectors
from holdfast.memory.embedders.static import StaticEmbedder
from holdfast.memory.engine.embedded import EmbeddedIndex
from holdfast.memory.question import understand
from holdfast.memory.scoring import rank

PROBES = [
    (
        "a paraphrase with no word in common",
        "Where can the car be fixed?",
        "The garage on Mill Street repairs vehicles.",
    ),
    ("a name with accents, asked without", "What did Zoe Muller order?", "Zoë Müller ordered the soup."),
    ("a name without accents, asked with", "What did Zoë Müller order?", "Zoe Muller ordered the stew."),
    ("an identifier", "What does ERR_7F3A-22 mean?", "ERR_7F3A-22 means that the cache is cold."),
    ("a path", "what is in src/holdfast/log/store.py", "We split src/holdfast/log/store.py in two."),
    ("a part of a camelCase name", "parse config file", "parseConfigFile was renamed on Monday."),
    ("Chinese", "我们什么时候去北京?", "我们下个星期去北京开会。"),
    ("Japanese", "東京の会議はいつですか", "東京の会議は来週の水曜日です。"),
    ("German", "Wann wurden die Häuser verkauft?", "Das Haus am See wurde im Mai verkauft."),
]
FILLER = [
    "The weather was mild and we walked along the river.",
    "Please send the invoice to the accounting team by Friday.",
    "The database migration took longer than we expected.",
    "I watched a film about penguins last night.",
    "Our train was late again, so the meeting began without us.",
    "The recipe needs two eggs and a little flour.",
]


CROWD = 100_000
OLDEST = "Grandmother planted a cherry tree in the orchard."
RARE = "The quokka handshake needs a lock."


def fill(desk: Desk, texts: list[str]) -> None:
    drafts = [EntryDraft(content=text, session_key="agent:main:main", role="user") for text in texts]
    with desk.store.write(OWNER) as tx:
        entries.load(tx, drafts)
    desk.memory.follow()


@pytest.mark.parametrize(("question", "answer"), [p[1:] for p in PROBES], ids=[p[0] for p in PROBES])
def test_it_finds(desk: Desk, question: str, answer: str) -> None:
    """Without a word in common the static model finds it, and is not sure enough to tell it unasked."""
    fill(desk, [*FILLER * 10, answer, *FILLER * 10])
    least = 0.0 if question == PROBES[0][1] else None
    hits = desk.ask(question, min_score=least).hits
    assert any(answer in hit.snippet for hit in hits[:3]), [hit.snippet for hit in hits]


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory, static: StaticEmbedder) -> Iterator[EmbeddedIndex]:
    """A hundred thousand entries: the oldest, one with a rare word, and talk of the same few things."""
    said = [f"The database lock {a}{b} was held in the meeting." for a in "bdfgklmnprst" for b in "aeiou"]
    vectors = static.embed_documents(said)
    index = EmbeddedIndex(tmp_path_factory.mktemp("crowd"))
    _say(index, 0, [OLDEST], static.embed_documents([OLDEST]))
    for start in range(1, CROWD - 1, 4_000):
        chosen = np.arange(start, min(start + 4_000, CROWD - 1)) % len(said)
        _say(index, start, [said[n] for n in chosen.tolist()], vectors[chosen])
    _say(index, CROWD - 1, [RARE], static.embed_documents([RARE]))
    yield index
    index.close()


def _say(index: EmbeddedIndex, first: int, texts: list[str], vectors: Vectors) -> None:
    documents = [
        Document(f"e{n}", text, "transcript", agent="main", thread="t", ordinal=n, at=n * 60_000)
        for n, text in enumerate(texts, first)
    ]
    index.upsert(documents, {StaticEmbedder.__name__: vectors})


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("quokka database lock", RARE),
        ("which lock does the quokka of the database need while a meeting is held?", RARE),
        ("Who planted the cherry tree?", OLDEST),
        ("the orchard at the very start", OLDEST),
    ],
)
def test_among_a_hundred_thousand_entries_it_finds(
    crowd: EmbeddedIndex, static: StaticEmbedder, question: str, answer: str
) -> None:
    assert crowd.count == CROWD
    view = crowd.view(Filter(agents=frozenset({"main"})))
    query = understand(question, Millis(CROWD * 60_000), view.speakers())
    best = rank(
        query.with_vector(static.embed_query(query.dense_text), StaticEmbedder.__name__), view, limit=3
    )
    found = view.documents(np.array([one.number for one in best], np.int64))
    assert answer in [document.text for document in found if document is not None]


def test_an_entry_written_a_moment_ago_is_found(desk: Desk) -> None:
    fill(desk, FILLER * 10)
    with desk.store.write(OWNER) as tx:
        entries.load(
            tx, [EntryDraft(content="The spare key is under the blue pot.", session_key="agent:main:main")]
        )
    assert "blue pot" in desk.ask("where is the spare key?").hits[0].snippet
