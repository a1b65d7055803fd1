"""Scores that can be held against a floor, places that no file fills alone, and clamps to the character."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from conftest_memory import Desk
from hypothesis import given, settings
from hypothesis import strategies as st
from test_scoring import NOW, LetterEmbedder, engine, said

from holdfast.config.memory import FLOOR, Limits
from holdfast.memory.confidence import Signals, answer, confidence
from holdfast.memory.dictionary import Dictionary
from holdfast.memory.documents import Document
from holdfast.memory.embedders.static import StaticEmbedder
from holdfast.memory.question import is_request, names_in
from holdfast.memory.quotas import Shares
from holdfast.memory.recall import prepare
from holdfast.memory.reference import InMemoryEngine
from holdfast.memory.results import Diagnostics, Found, Hit, Room
from holdfast.memory.scoring import Scoring, rank
from holdfast.memory.snippets import snippet

SHARE = st.floats(0, 1)
SIGNALS = st.builds(Signals, *[SHARE] * len(fields(Signals)))
WORDS = st.lists(
    st.sampled_from(("key", "boat", "lamp", "fog", "bread", "the", "is")), min_size=1, max_size=6
)


@given(SIGNALS, st.sampled_from(("static", "better")))
def test_a_confidence_is_a_probability_and_grows_with_what_speaks_for_it(one: Signals, serves: str) -> None:
    sure = confidence(one, serves)
    assert 0 <= sure <= 1
    for name in ("words", "words_near", "likeness", "agreement", "standing_out", "held"):
        assert confidence(replace(one, **{name: 1.0}), serves) >= sure
    for name in ("unknown", "request", "stranger"):
        assert confidence(replace(one, **{name: 1.0}), serves) <= sure


@pytest.mark.parametrize(
    ("everyday", "rare"),
    [
        ("Write a haiku about the night", "Write a haiku about Hoofddorp"),
        ("What time is it in Nairobi?", "What valve is it in Nairobi?"),
        ("Wie heißt der Fluss in Rom?", "Wo ist der Mieter in Rom?"),
    ],
)
def test_an_everyday_word_that_few_entries_have_tells_less_than_a_rare_one(everyday: str, rare: str) -> None:
    talk = [
        "We sleep at my sister's in Hoofddorp the night before the flight.",
        "The time of the meeting with Rob is nine, he books the room.",
        "Der neue Mieter heißt Brandt und zieht im Mai ein.",
        "The boiler engineer comes on Wednesday for the valve.",
    ]
    documents = [said(number, text) for number, text in enumerate(talk)]
    base = StaticEmbedder()
    view = InMemoryEngine(documents, {base.id.fingerprint: base.embed_documents(talk)})

    def sure(text: str) -> float:
        return answer(prepare(text, view, base, now=NOW), view, base, Scoring(), limit=5).confidence

    assert sure(everyday) < sure(rare) - 0.1
    assert sure(everyday) < FLOOR
    assert sure("What is 9 times 23?") < FLOOR
    assert sure("Where do we sleep before the flight?") >= FLOOR


@pytest.mark.parametrize(
    ("asked", "said_of_it"),
    [
        ("What is today's date?", "The fitting has a new date, the seamstress has broken her wrist."),
        ("Wie wird das Wetter am Wochenende?", "Am Wochenende rudern wir nach Münden."),
        ("Wie rechne ich Zoll in Zentimeter um?", "Schief wie sonst was. Drei Zentimeter auf vier Meter."),
        ("Empfiehl mir ein Buch für den Urlaub.", "Fricke hat Urlaub bis 19. Juli, im Buch steht es."),
    ],
)
def test_what_anybody_could_know_is_not_answered_by_who_spoke_of_the_like(
    static: StaticEmbedder, asked: str, said_of_it: str
) -> None:
    talk = [said_of_it, "The boiler engineer comes on Wednesday.", "Der Vierer hat einen Riss."]
    documents = [said(number, text) for number, text in enumerate(talk)]
    view = InMemoryEngine(documents, {static.id.fingerprint: static.embed_documents(talk)})
    query = prepare(asked, view, static, now=NOW)
    assert answer(query, view, static, Scoring(), limit=3).confidence < FLOOR


def test_a_greeting_asks_nothing() -> None:
    for text in ("Good night!", "Gute Nacht!", "Guten Abend, wie geht es Ihnen?"):
        assert is_request(text)
    assert not is_request("Good night at the Hotel Alfama?")


@pytest.mark.parametrize(
    ("asked", "of_anybody"),
    [
        ("Could you please recommend a film?", True),
        ("Kannst du mir ein gutes Buch empfehlen?", True),
        ("Schlag mir drei Namen für einen Goldfisch vor.", True),
        ("Wie viele Beine hat eine Spinne?", True),
        ("What is 15 percent of 240?", True),
        ("What should I cook tonight?", True),
        ("Book the hotel in Lisbon.", False),
        ("How many days do we have in Lisbon?", False),
        ("Wie viele Beete hat die Parzelle?", False),
        ("Was hat Marta vorgeschlagen?", False),
    ],
)
def test_who_asks_for_something_that_anybody_could_give_asks_nothing_of_memory(
    asked: str, of_anybody: bool
) -> None:
    assert is_request(asked) is of_anybody


def test_a_german_question_with_no_word_of_its_own_language_names_nobody() -> None:
    assert names_in("Was zahlt Familie Brandt insgesamt?") == frozenset()
    assert names_in("When does Marta start?") == {"marta"}


@settings(max_examples=60)
@given(st.lists(WORDS, min_size=1, max_size=8), WORDS, SHARE, st.integers(1, 6))
def test_calibrated_results_are_the_ranked_ones_above_the_floor(
    talk: list[list[str]], question: list[str], least: float, limit: int
) -> None:
    view = engine([said(number, " ".join(words)) for number, words in enumerate(talk)])
    base = LetterEmbedder()
    query = prepare(" ".join(question), view, base, now=NOW)
    ranked = rank(query, view, Scoring(), limit=limit)
    whole = answer(query, view, base, Scoring(), limit=limit)
    assert [one.number for one in whole.results] == [one.number for one in ranked]
    for one in whole.results:
        assert 0 <= one.score <= 1
        assert sum(one.parts.values()) == pytest.approx(one.score)
    if whole.results:
        assert whole.results[0].score == pytest.approx(whole.confidence)
    some = answer(query, view, base, Scoring(), limit=limit, least=least)
    assert all(one.score >= least - 1e-9 for one in some.results)
    assert bool(some.results) == (whole.confidence >= least and bool(ranked))


def test_the_name_of_one_who_speaks_here_does_not_answer_for_what_was_never_said(
    static: StaticEmbedder,
) -> None:
    turns = [
        ("Melanie", "Melanie: I painted a lake sunrise last year."),
        ("Caroline", "Caroline: The adoption agency called back."),
        ("Melanie", "Melanie: We took the kids camping at the lake."),
        ("Caroline", "Caroline: I bought a pottery kiln."),
    ]
    documents = [
        Document(id=str(n), text=text, speaker=who, thread="t", ordinal=n, at=n)
        for n, (who, text) in enumerate(turns)
    ]
    view = InMemoryEngine(documents, {static.id.fingerprint: static.embed_documents([t for _, t in turns])})

    def sure(question: str) -> float:
        query = prepare(question, view, static, now=NOW)
        return answer(query, view, static, Scoring(), limit=3).confidence

    assert sure("What is the name of Melanie's podcast?") < FLOOR
    assert sure("When did Melanie paint the sunrise?") >= FLOOR


def test_an_empty_scope_has_no_answer(static: StaticEmbedder) -> None:
    view = InMemoryEngine([], {})
    made = answer(prepare("anything", view, None, now=NOW), view, static, Scoring(), limit=5)
    assert (made.results, made.confidence) == ([], 0.0)


FILES = st.lists(
    st.tuples(st.sampled_from(("file", "log")), st.integers(0, 3), st.floats(0.01, 1)), max_size=20
)


@given(FILES, st.integers(1, 8))
def test_no_file_has_a_third_place_while_another_fits(rows: list[tuple[str, int, float]], limit: int) -> None:
    rows = sorted(rows, key=lambda row: -row[2])
    sources, files = [source for source, _, _ in rows], [file for _, file, _ in rows]
    worth = np.array([score for _, _, score in rows])
    order = np.arange(len(rows))
    chosen = Shares({}, 0.5, per_file=2).places(order, worth, sources, files, limit)
    assert chosen == sorted(chosen)
    assert len(chosen) == min(limit, len(rows))
    counts = Counter(files[place] for place in chosen if sources[place] == "file")
    passed_over = [
        place for place in range(len(rows)) if place not in chosen and worth[place] >= worth[0] / 2
    ]
    if any(count > 2 for count in counts.values()):
        assert all(sources[place] == "file" and counts[files[place]] >= 2 for place in passed_over)


LINES = st.lists(st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=120), max_size=12)


@given(
    st.lists(st.tuples(LINES, st.text("abc/ä", min_size=1, max_size=60)), max_size=8),
    st.integers(1, 400),
    st.integers(1, 1500),
    st.booleans(),
)
def test_nothing_passes_its_clamp_by_a_character(
    texts: list[tuple[list[str], str]], most: int, injected: int, cite: bool
) -> None:
    limits = Limits.model_validate({"maxSnippetChars": most, "maxInjectedChars": injected})
    nothing = Found((), "static", "m", None, cite, Diagnostics("builtin", "hybrid", 9, 0, 0))
    room = Room(limits, nothing)
    hits = []
    for lines, path in texts:
        hit = Hit(id="x", path=path, snippet="", start=None, end=None, score=0.5, source="memory")
        cut = partial(_cut, "\n".join(lines))
        made = room.fit(hit, cut, lines=True)
        hits += [] if made is None else [made]
    assert all(len(hit.json()["snippet"]) <= most for hit in hits)
    whole = replace(nothing, hits=hits, diagnostics=replace(nothing.diagnostics, took_ms=12345)).json()
    assert not hits or len(json.dumps(whole, ensure_ascii=False)) <= injected


def _cut(text: str, most: int):  # type: ignore[no-untyped-def]
    return snippet(text, (), most=most)


def test_a_source_gives_way_to_the_text_where_there_is_room_for_one_only() -> None:
    hit = Hit(
        id="x", path="a/very/long/path.md", snippet="", start=None, end=None, score=0.5, source="memory"
    )
    cut = partial(_cut, "The key is in the drawer of the old desk.")
    nothing = Found((), "static", "m", None, True, Diagnostics("builtin", "hybrid", 9, 0, 0))
    cited, plain = (
        Room(Limits.model_validate({"maxSnippetChars": most}), nothing).fit(hit, cut, lines=True)
        for most in (80, 30)
    )
    assert cited is not None
    assert plain is not None
    assert cited.shown.endswith("Source: a/very/long/path.md#L1")
    assert (plain.cited, plain.shown) == (False, "The key is in the drawer of t…")


WORDS_DE_EN = """\
# A word list of our own.
Ersatzschlüssel {m} | Ersatzschlüssel {pl} :: spare key (to sth.) | spare keys
liegen {vi} | liegend :: to lie | lying
Buchung {f} | Buchungen {pl} :: booking | bookings
Code {m} :: code
Heizung {f}; Heizanlage {f} :: boiler; heating
warten {vt}; instandhalten {vt} :: to service; to maintain
"""


@pytest.mark.parametrize(
    ("question", "path"),
    [
        ("Bei wem liegt der Ersatzschlüssel?", "memory/key.md"),
        ("Wie lautet der Buchungscode?", "memory/flight.md"),
        ("Wer hat die Heizung gewartet?", "memory/boiler.md"),
        ("where is the boathouse?", "memory/haus.md"),
    ],
)
def test_a_question_in_one_language_finds_notes_in_the_other_by_a_word_list(
    desk: Desk, tmp_path: Path, question: str, path: str
) -> None:
    (tmp_path / "de-en").write_text(WORDS_DE_EN + "Bootshaus {n} :: boathouse\n")
    desk.memory.dictionary = Dictionary(tmp_path / "words.db", [str(tmp_path / "de-en")])
    desk.write("memory/key.md", "The spare key is with the Okafors on the third floor.")
    desk.write("memory/flight.md", "Our flight to Porto is TP 581, booking code R8LQ2V.")
    desk.write("memory/boiler.md", "The boiler was serviced by Herr Brandt on 9 March.")
    desk.write("memory/haus.md", "Das Bootshaus ist am Ende der Straße neben der Brücke.")
    desk.write("memory/bread.md", "Left-over bread goes to the food bank at seven in the evening.")
    desk.memory.update("main")
    found = desk.ask(question)
    assert [hit.path for hit in found.hits][:1] == [path], found.diagnostics


def test_a_word_list_changes_nothing_for_words_that_the_notes_have(desk: Desk, tmp_path: Path) -> None:
    desk.write("memory/key.md", "The spare key is with the Okafors.")
    desk.memory.update("main")
    before = desk.ask("who has the spare key?").hits
    (tmp_path / "de-en").write_text(WORDS_DE_EN)
    desk.memory.dictionary = Dictionary(tmp_path / "words.db", [str(tmp_path / "de-en"), "/not/there"])
    desk.memory.update("main")
    assert desk.ask("who has the spare key?").hits == before
