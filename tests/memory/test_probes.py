"""Questions that peers fail, each with what must be found."""

from __future__ import annotations

import pytest
from conftest_memory import Desk

from holdfast.log import EntryDraft, entries

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


def fill(desk: Desk, texts: list[str]) -> None:
    drafts = [EntryDraft(content=text, session_key="agent:main:main", role="user") for text in texts]
    with desk.store.write() as tx:
        entries.load(tx, drafts)
    desk.memory.follow()


@pytest.mark.parametrize(("question", "answer"), [p[1:] for p in PROBES], ids=[p[0] for p in PROBES])
def test_it_finds(desk: Desk, question: str, answer: str) -> None:
    fill(desk, [*FILLER * 10, answer, *FILLER * 10])
    hits = desk.ask(question).hits
    assert any(answer in hit.snippet for hit in hits[:3]), [hit.snippet for hit in hits]


def test_a_rare_word_beside_common_ones_decides_and_the_oldest_entry_is_reached(desk: Desk) -> None:
    fill(
        desk,
        [
            "The quokka handshake needs a lock.",
            *[f"The database lock number {n} was held." for n in range(8000)],
        ],
    )
    assert "quokka" in desk.ask("quokka database lock").hits[0].snippet
