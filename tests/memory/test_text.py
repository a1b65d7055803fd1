"""Terms: the same word is found however it was written, and a code is found whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.clock import Millis
from holdfast.memory.documents import Document
from holdfast.memory.folding import fold
from holdfast.memory.question import understand
from holdfast.memory.reference import InMemoryEngine
from holdfast.memory.text import (
    ASKS,
    NAMES_TIME,
    OWN,
    PARTICULAR,
    PARTICULARS,
    REPLIES,
    language_of,
    query_terms,
    terms,
    words_of,
)


@pytest.mark.parametrize(
    ("document", "question"),
    [
        ("We planned the camping trips", "camping trip"),
        ("André met Zoë at the café", "Andre Zoe cafe"),
        ("Andre met Zoe at the cafe", "André, Zoë, Café"),
        ("Straße in Łódź", "strasse lodz"),
        ("it failed with ERR_7F3A-22 again", "ERR_7F3A-22"),
        ("it failed with ERR_7F3A-22 again", "err7f3a22"),
        ("see src/foo/bar.py", "src/foo/bar.py"),
        ("see src/foo/bar.py", "bar.py"),
        ("call parseJsonFile here", "json"),
        ("call parseJsonFile here", "parsejsonfile"),
        ("set max_retry_count to 3", "retry"),
        ("set max_retry_count to 3", "max_retry_count"),
        ("write to jo.doe@example.org", "jo.doe@example.org"),
        ("upgraded to 1.2.3", "1.2.3"),
        ("my e-mail", "email"),
        ("東京に行きました", "東京"),
        ("カラオケが好き", "カラオケ"),
        ("서울에서 만나요", "서울"),
        ("Die Rechnungen sind bezahlt und liegen im Haus", "Wo ist die Rechnung?"),
        ("Caroline's garden", "Caroline"),
    ],
)
def test_a_question_finds_the_document(document: str, question: str) -> None:
    asked = query_terms(question).terms
    assert asked
    assert set(asked) & set(terms(document))


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("Jakob wird am 24. Mai konfirmiert", "Wo feiern wir die Konfirmation?"),
        ("Wir haben das Hotel umgebucht", "Was kostet die Umbuchung?"),
        ("Sabine ist die Kassenwartin", "Wer ist der Kassenwart?"),
        ("Ich habe den Tisch bestellt", "Ist die Bestellung da?"),
        ("Der Vertrag ist gekündigt", "Wann war die Kündigung?"),
    ],
)
def test_a_german_word_is_found_in_its_other_forms(said: str, asked: str) -> None:
    assert set(terms(said)) & set(query_terms(asked).content)


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("Die Frist für die Steuern ist verlängert.", "Wann muss die Steuererklärung fertig sein?"),
        ("Die Donaureise ist im Juni.", "Wann ist die Schiffsreise?"),
        ("Die Operation der Augen ist am 16.", "Wann ist die Augenoperation?"),
        ("Die Wärmepumpe wird im Mai geliefert.", "Wann wird die Pumpe geliefert?"),
        ("Die Förderzusage ist da: 50 Prozent.", "Wie hoch ist die Förderung?"),
    ],
)  # fmt: skip
def test_a_german_compound_is_found_by_its_words_and_by_others_that_share_one(said: str, asked: str) -> None:
    other = "Die Katze schläft auf dem Sofa."
    view = InMemoryEngine([Document(id=text, text=text, at=1) for text in (other, said)])
    query = understand(asked, Millis(1)).within(view.frequencies)
    assert view.lexical(query.terms, 2).numbers.tolist() == [1]


def test_a_compound_that_stands_there_is_looked_for_as_a_whole() -> None:
    texts = ["Die Klassenfahrt geht nach Hamburg.", "Die Klasse hat neue Bücher.", "Die Fahrt war lang."]
    view = InMemoryEngine([Document(id=text, text=text, at=1) for text in texts])
    query = understand("Wer kommt mit auf die Klassenfahrt?", Millis(1)).within(view.frequencies)
    assert view.lexical(query.terms, 3).numbers.tolist() == [0]


@pytest.mark.parametrize(
    "word", ["Haushalt", "Schwester", "Vielleicht", "Mittwoch", "Protokoll", "Manchester"]
)
def test_a_word_of_everyday_talk_is_no_compound(word: str) -> None:
    assert words_of(word, "german") == ()


def test_every_term_of_an_identifier_asked_for_is_in_the_document() -> None:
    document = terms("it failed with ERR_7F3A-22 in src/foo/bar.py, version 1.2.3")
    for identifier in ("ERR_7F3A-22", "src/foo/bar.py", "1.2.3"):
        assert set(query_terms(identifier).terms) <= set(document)


def test_a_version_is_not_the_number_that_its_digits_make() -> None:
    assert "123" not in terms("version 1.2.3")


def test_function_words_are_left_out_but_a_question_of_nothing_else_is_still_asked() -> None:
    assert terms("it is what they were") == []
    assert terms("I don't, you can't, they won't") == []
    assert query_terms("What is it?").terms


def test_the_language_is_told_by_its_function_words() -> None:
    assert language_of("Wann ist die Rechnung gekommen und von wem?") == "german"
    assert language_of("When did the invoice come and from whom?") == "english"


def test_a_document_that_asks_or_names_a_time_carries_a_cue() -> None:
    assert ASKS in terms("How was the race?")
    assert NAMES_TIME in terms("I ran a race last Saturday")
    assert not {ASKS, NAMES_TIME} & set(terms("I ran a race"))


def test_a_document_carries_cues_of_what_kind_of_text_it_is() -> None:
    kinds = {PARTICULAR, PARTICULARS, OWN, REPLIES}
    told = "[1:56 pm on 8 May, 2023] Ann: I met Frank Herbert, my neighbour"
    assert kinds & set(terms(told)) == {PARTICULAR, PARTICULARS, OWN}
    assert kinds & set(terms("Das Buch „Momo“ liegt bei dir")) == {PARTICULAR}
    assert kinds & set(terms("Thanks, you are kind")) == {REPLIES}
    assert not kinds & set(terms("the gutter drips"))


def test_the_date_before_a_turn_is_not_taken_for_a_time_that_it_names() -> None:
    assert NAMES_TIME not in terms("[1:56 pm on 8 May, 2023] Ann: I ran a race")


def test_a_question_never_searches_for_cues() -> None:
    assert not {ASKS, NAMES_TIME} & set(query_terms("When was the race last Saturday?").terms)


@given(st.text())
def test_every_term_is_one_word_of_letters_and_digits(text: str) -> None:
    for term in [*terms(text), *query_terms(text).terms]:
        assert term
        assert not any(char.isspace() for char in term)
        assert len(term) <= 64


@given(st.text())
def test_a_text_asked_as_it_stands_finds_itself(text: str) -> None:
    asked = query_terms(text)
    assert set(asked.content) <= set(terms(text))


@given(st.text())
def test_folding_twice_is_folding_once(text: str) -> None:
    assert fold(fold(text)) == fold(text)
