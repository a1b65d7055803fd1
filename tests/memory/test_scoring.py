"""Ranking: words and meaning, and what a conversation adds to them."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from holdfast.clock import Millis, parse_iso
from holdfast.errors import InvalidInput
from holdfast.memory.documents import Document
from holdfast.memory.embedders.base import EmbedderId, normalised
from holdfast.memory.passage import Links, around
from holdfast.memory.question import named_speakers, understand
from holdfast.memory.recall import prepare, recall
from holdfast.memory.reference import InMemoryEngine
from holdfast.memory.scoring import PROFILES, Scored, Scoring, rank

NOW = parse_iso("2023-06-14T12:00:00Z")


class LetterEmbedder:
    """Meaning as the letters of a text: crude, but real vectors that tests can foresee."""

    id = EmbedderId("test", "letters", 26, "letters")

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array([self.embed_query(text) for text in texts], np.float32).reshape(-1, 26)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        counts = [text.lower().count(letter) for letter in string.ascii_lowercase]
        return normalised(np.array(counts, np.float32))


def said(number: int, text: str, speaker: str = "Ann", **more: Any) -> Document:
    given: dict[str, Any] = {"source": "transcript", "thread": "t", "ordinal": number, "at": NOW - 1000}
    return Document(id=str(number), text=f"{speaker}: {text}", speaker=speaker, **{**given, **more})


def engine(documents: Sequence[Document], *, vectors: bool = True) -> InMemoryEngine:
    texts = [document.text for document in documents]
    return InMemoryEngine(documents, {"letters": LetterEmbedder().embed_documents(texts)} if vectors else {})


def ask(question: str, documents: Sequence[Document], **more: Any) -> list[Scored]:
    return recall(question, engine(documents), LetterEmbedder(), now=NOW, **more)


def order(results: Sequence[Scored]) -> list[int]:
    return [result.number for result in results]


def test_a_rare_word_decides_over_common_ones() -> None:
    talk = [said(n, "we went to the garden again and the garden was nice", thread=f"t{n}") for n in range(30)]
    talk.append(said(30, "the xylophone is in the attic", thread="x"))
    assert order(ask("which garden has the xylophone", talk))[0] == 30


_WORDS = "garden lisbon flight invoice keller roof tiles alarm code pump order ferry"
PHRASE = st.lists(st.sampled_from(_WORDS.split()), min_size=1, max_size=12).map(" ".join)
LETTERS = ("K7QX2M", "pg_stat_statements", "/etc/fstab", "#4711", "nas-2", "a.b@c.org", "18250")


@given(
    others=st.lists(PHRASE, min_size=1, max_size=40),
    words=PHRASE,
    about=PHRASE,
    named=st.sampled_from(
        ["K7QX2M", "pg_stat_statements", "/etc/fstab", "#4711", "nas-2", "a.b@c.org", "18250"]
    ),
    place=st.integers(0, 39),
)
@settings(max_examples=60, deadline=None)
def test_what_is_asked_for_to_the_letter_comes_before_what_is_merely_near(
    others: list[str], words: str, about: str, named: str, place: int
) -> None:
    """However much of the question others share, and however alike they are to it."""
    at = min(place, len(others))
    talk = [*others[:at], f"{words} {named}", *others[at:]]
    documents = [said(n, text, "Ann Keller", thread=f"t{n // 3}") for n, text in enumerate(talk)]
    results = ask(f"when did Keller say {about} about {named}?", documents)
    assert order(results)[0] == at
    assert results[0].parts["literal"] == pytest.approx(0.5)


@given(others=st.lists(PHRASE, min_size=1, max_size=40), first=PHRASE, last=PHRASE)
@settings(max_examples=40, deadline=None)
def test_a_quoted_phrase_comes_before_what_has_but_some_of_its_words(
    others: list[str], first: str, last: str
) -> None:
    documents = [
        *(said(n, f"{text} quokka", thread=f"t{n}") for n, text in enumerate(others[::2])),
        *(said(100 + n, f"{text} xylophone", thread=f"u{n}") for n, text in enumerate(others[1::2])),
        said(200, f"{first} quokka xylophone {last}", thread="here"),
    ]
    assert order(ask(f'{last} {first} "quokka xylophone"', documents))[0] == len(documents) - 1


def test_a_quoted_phrase_comes_before_what_has_all_its_words_in_another_order() -> None:
    documents = [
        said(0, "There is a gap between two worlds of thought, and minds differ. The gap between worlds."),
        said(1, "Over the red door it says: Mind the GAP between worlds."),
        *(said(n, "a gap in the mind of all worlds between others") for n in range(2, 30)),
    ]
    for question in ('"mind the gap between worlds"', "Where stands “mind the gap between worlds”?"):
        assert order(ask(question, documents))[0] == 1
    misquoted = ask('"mind a gap between these worlds"', documents[:2])
    assert [one.parts.get("literal", 0) > 0 for one in misquoted] == [True, True]


def test_a_year_and_an_amount_are_not_taken_to_the_letter() -> None:
    assert understand("What did we pay in 2023, was it 5k or 30 minutes?", NOW).literals == ()


def test_the_turns_beside_count_by_the_words_of_the_question_that_they_add() -> None:
    """Three turns that together have all that is asked for stand before one that has half of it twice."""
    talk = [
        said(0, "we looked at the lisbon hotel", thread="a"),
        said(1, "it has a view of the river", thread="a"),
        said(2, "breakfast costs extra there", thread="a"),
        said(3, "the lisbon flight and the lisbon train", thread="b", ordinal=0),
    ]
    results = recall("lisbon hotel breakfast", engine(talk, vectors=False), now=NOW)
    assert order(results)[-1] == 3
    assert all(result.parts["beside"] > 0 for result in results)


def test_what_tells_of_something_by_its_name_comes_before_a_kind_reply() -> None:
    talk = [
        replace(
            said(0, "", thread="a"), text="Wow, the book of the month sounds great, lovely, yours always do"
        ),
        replace(said(1, "", thread="b"), text='The book of the month was "Dune", as our friend Frank told'),
    ]
    results = recall("book", engine(talk, vectors=False), now=NOW)
    assert order(results)[0] == 1
    assert results[0].parts["particular"] > results[1].parts.get("particular", 0.0)
    assert results[0].parts["statement"] > results[1].parts["statement"]


def test_without_an_embedder_the_words_alone_are_searched() -> None:
    view = engine([said(0, "bread and butter"), said(1, "a xylophone", thread="u")], vectors=False)
    results = recall("xylophone", view, now=NOW)
    assert order(results) == [1]
    assert results[0].cosine is None
    assert "dense" not in results[0].parts


def test_a_document_without_a_vector_is_found_by_its_words() -> None:
    documents = [said(0, "bread"), said(1, "a xylophone", thread="u")]
    vectors = LetterEmbedder().embed_documents([document.text for document in documents])
    vectors[1] = np.nan
    view = InMemoryEngine(documents, {"letters": vectors})
    assert order(recall("xylophone", view, LetterEmbedder(), now=NOW))[0] == 1


def test_a_question_with_nothing_in_the_scope_finds_nothing() -> None:
    assert recall("xylophone", engine([], vectors=False), now=NOW) == []
    assert recall("xylophone", engine([said(0, "bread")], vectors=False), now=NOW) == []


def test_the_answer_to_a_matching_question_is_found_without_its_words() -> None:
    talk = [
        said(0, "What is your dog called?", "Ann"),
        said(1, "Biscuit, since the day he stole one", "Bob"),
        said(2, "I bought new shoes", "Ann", thread="u", ordinal=0),
    ]
    assert 1 in order(recall("dog", engine(talk, vectors=False), now=NOW))
    assert "answer" in recall("dog", engine(talk, vectors=False), now=NOW)[1].parts


def test_what_the_named_person_said_comes_before_what_another_said() -> None:
    talk = [said(0, "I like tennis", "Ann"), said(1, "I like tennis", "Bob", thread="u")]
    assert order(ask("What sport does Bob like, tennis?", talk))[0] == 1
    assert order(ask("What sport does Ann like, tennis?", talk))[0] == 0


def test_naming_everyone_prefers_no_one() -> None:
    talk = [said(0, "I like tennis", "Ann"), said(1, "I like tennis", "Bob", thread="u")]
    assert all("speaker" not in result.parts for result in ask("Do Ann and Bob like tennis?", talk))


def test_speakers_are_known_by_part_of_their_name_and_roles_are_not_names() -> None:
    speakers = ["Zoë Miller", "Alexandra", "user"]
    assert set(named_speakers("What did Zoe say?", speakers)) == {"Zoë Miller"}
    assert set(named_speakers("What did Alex say?", speakers)) == {"Alexandra"}
    assert not named_speakers("What did the User say?", speakers)
    assert not named_speakers("I will ask", ["Will"])
    assert set(named_speakers("what did alexandra say", speakers)) == {"Alexandra"}


@pytest.mark.parametrize(
    ("question", "speaker"),
    [("Has it rained?", "Hassan"), ("It rained in May", "Maya"), ("Will it?", "Will")],
)
def test_a_word_that_begins_like_a_name_is_not_one(question: str, speaker: str) -> None:
    assert not named_speakers(question, [speaker])


def test_a_named_speaker_is_left_out_of_what_is_embedded_but_kept_in_the_words() -> None:
    query = understand("What is Bob's favourite game?", NOW, ["Ann", "Bob"])
    assert "Bob" not in query.dense_text
    assert "bob" in query.terms


def test_an_entry_of_the_time_asked_about_comes_first() -> None:
    old, new = parse_iso("2023-02-07T09:00:00Z"), parse_iso("2023-05-07T09:00:00Z")
    talk = [said(0, "we ate pizza", at=new), said(1, "we ate pizza", at=old, thread="u")]
    assert order(ask("what did we eat in February 2023, pizza?", talk))[0] == 1
    assert order(ask("what did we eat in May 2023, pizza?", talk))[0] == 0


def test_when_asks_for_a_text_that_names_a_time() -> None:
    talk = [said(0, "I run a race every so often"), said(1, "I ran a race two weeks ago", thread="u")]
    assert order(ask("When was the race?", talk))[0] == 1


def test_a_curated_note_comes_before_chatter_with_the_same_words() -> None:
    note = replace(said(1, "the server is called kelp", thread="n"), source="note", curated=True)
    assert order(ask("server kelp", [said(0, "the server is called kelp"), note]))[0] == 1


def test_a_long_pause_ends_a_conversation() -> None:
    day = 86_400_000
    near = [said(0, "dog?", at=NOW - day), said(1, "Biscuit", at=NOW - day)]
    far = [said(0, "dog?", at=NOW - 9 * day), said(1, "Biscuit", at=NOW - day)]
    assert order(recall("dog", engine(near, vectors=False), now=NOW)) == [0, 1]
    assert order(recall("dog", engine(far, vectors=False), now=NOW)) == [0]


def test_transcripts_leave_room_for_files() -> None:
    chatter = [said(n, "kelp kelp kelp", thread=f"t{n}") for n in range(20)]
    files = [
        replace(said(20 + n, "kelp, kelp in the sea", thread=None), source="file", speaker=None)
        for n in range(5)
    ]
    sources = [
        "file" if number >= 20 else "transcript"
        for number in order(ask("kelp", [*chatter, *files], limit=10))
    ]
    assert sources.count("transcript") == 7
    assert len(sources) == 10


def test_a_quota_leaves_no_place_empty() -> None:
    chatter = [said(n, "kelp", thread=f"t{n}") for n in range(20)]
    assert len(ask("kelp", chatter, limit=10)) == 10


def test_the_qmd_profile_leans_on_meaning() -> None:
    view = engine([said(0, "kelp"), said(1, "kelp holds fast", thread="u")])
    query = prepare("kelp", view, LetterEmbedder(), now=NOW)
    plain, qmd = (rank(query, view, PROFILES[name])[0] for name in ("default", "qmd"))
    assert qmd.parts["dense"] > plain.parts["dense"]


def test_weights_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InvalidInput):
        Scoring(dense=0, lexical=0)
    with pytest.raises(InvalidInput):
        Scoring(speaker=-1)


class Contrary:
    """A judge that likes the highest number best."""

    def scores(self, question: str, numbers: NDArray[np.int64]) -> list[float]:
        return [float(number == numbers.max()) for number in numbers]


def test_a_reranker_judges_only_when_it_is_switched_on() -> None:
    talk = [said(0, "kelp kelp"), said(1, "kelp and a great many other things", thread="u")]
    assert order(ask("kelp", talk, reranker=Contrary()))[0] == 0
    judged = ask("kelp", talk, reranker=Contrary(), options=Scoring(rerank=5))
    assert order(judged)[0] == 1
    assert judged[0].parts["rerank"] > 0


WORDS = st.lists(
    st.sampled_from(["kelp", "tide", "root", "sea", "Ann", "Bob", "when?", "last", "week"]), max_size=6
)
TALK = st.lists(
    st.tuples(
        WORDS,
        st.sampled_from(["Ann", "Bob", None]),
        st.sampled_from(["transcript", "file", "note"]),
        st.booleans(),
        st.integers(0, 3),
    ),
    max_size=25,
)


def build(rows: Sequence[Any]) -> list[Document]:
    return [
        Document(
            id=str(n), text=" ".join(words), speaker=speaker, source=source, curated=curated,
            thread=f"t{thread}", ordinal=n, at=n * 1000,
        )
        for n, (words, speaker, source, curated, thread) in enumerate(rows)
    ]  # fmt: skip


@settings(max_examples=80)
@given(TALK, WORDS, st.integers(1, 12))
def test_parts_add_up_to_a_score_between_0_and_1_and_the_best_come_first(
    rows: Sequence[Any], question: list[str], limit: int
) -> None:
    results = recall(" ".join(question), engine(build(rows)), LetterEmbedder(), now=Millis(NOW), limit=limit)
    assert len(results) <= limit
    assert len({result.number for result in results}) == len(results)
    assert all(first.score >= second.score - 1e-8 for first, second in pairwise(results))
    for result in results:
        assert 0 <= result.score <= 1 + 1e-9
        assert sum(result.parts.values()) == pytest.approx(result.score)


@settings(max_examples=60)
@given(TALK, WORDS)
def test_as_many_candidates_as_documents_change_nothing(rows: Sequence[Any], question: list[str]) -> None:
    view = engine(build(rows))
    query = prepare(" ".join(question), view, LetterEmbedder(), now=Millis(NOW))
    assert rank(query, view, Scoring(candidates=25)) == rank(query, view, Scoring(candidates=10_000))


@given(
    values=st.lists(st.floats(0, 1), min_size=1, max_size=12),
    turns=st.lists(st.integers(-1, 11), min_size=24, max_size=24),
    reach=st.integers(0, 4),
    best=st.integers(1, 5),
)
def test_what_stands_around_is_the_mean_of_the_best_few(
    values: list[float], turns: list[int], reach: int, best: int
) -> None:
    count = len(values)
    pairs = np.array([turn if turn < count else -1 for turn in turns[: 2 * count]], np.int64).reshape(
        count, 2
    )
    links = Links.of(np.arange(count), pairs, np.zeros(count, np.int64), pause=1, reach=max(1, reach))
    got = around(np.array(values), links, reach, best)
    for place, value in enumerate(values):
        heard = [value]
        for side in (0, 1):
            at = place
            for _ in range(reach):
                at = int(pairs[at, side]) if at >= 0 else -1
                heard.append(values[at] if at >= 0 else 0.0)
        top = sorted(heard, reverse=True)[:best]
        alone = (pairs[place] < 0).all()
        assert got[place] == pytest.approx(value if alone else sum(top) / len(top))


_sayings = st.lists(st.text("abc ", min_size=1, max_size=8), min_size=1, max_size=25)


@given(texts=_sayings, limit=st.integers(2, 12), thread=st.booleans())
@settings(deadline=None)
def test_results_are_plain_values_and_few_of_them_are_the_first_of_many(
    texts: list[str], limit: int, thread: bool
) -> None:
    documents = [
        said(n, text, thread="t" if thread else None, at=NOW - n % 3) for n, text in enumerate(texts)
    ]
    view, options = engine(documents), Scoring(quotas={}, candidates=50)
    query = prepare("abc cab a", view, LetterEmbedder(), now=NOW)
    every = rank(query, view, options, limit=50)
    few = rank(query, view, options, limit=limit)
    assert few[: limit - 1] == every[: limit - 1]
    ranked = sorted(every, key=lambda one: (-round(one.score, 9), -documents[one.number].at, one.number))
    assert order(every) == order(ranked)
    numbers = np.array(order(every), np.int64)
    assert query.vector is not None
    cosines = view.dense_scores("letters", query.vector, numbers)
    words = view.lexical_scores(query.terms, numbers)
    for one, cosine, bm25 in zip(every, cosines, words, strict=True):
        assert sum(one.parts.values()) == pytest.approx(one.score)
        assert {type(value) for value in (one.score, one.bm25, *one.parts.values())} == {float}
        assert 0.0 not in one.parts.values()
        assert one.bm25 == bm25
        assert (one.cosine is None and np.isnan(cosine)) or one.cosine == cosine
