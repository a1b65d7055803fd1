"""The parts of the classifier that decide without a store: words, names, weighing, answers, the audit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.board import noise
from holdfast.board.audit import Audit
from holdfast.board.candidates import WordIndex
from holdfast.board.exchanges import Exchange
from holdfast.board.heuristic import decide, profile
from holdfast.board.judge import BadAnswer, Sorting
from holdfast.board.naming import NAME_CHARS, YoungNames, topic_name
from holdfast.board.summaries import CHIP_CHARS, chip, sentences
from holdfast.board.words import subject_terms, terms
from holdfast.clock import ManualClock
from holdfast.config.board import Audit as AuditOptions


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Hey, can you please fix the PostgreSQL backup script on the server?", "PostgreSQL backup script"),
        ("By the way, I need to book a dentist appointment for Anna", "Dentist appointment, Anna"),
        ("Thanks! Let's plan the trip to Lisbon in May", "Trip to Lisbon"),
        ("Ich plane die Klassenfahrt der 9b nach Hamburg, 8. bis 12. Juni.", "Klassenfahrt, Hamburg"),
        ("Der Ölkessel ist 31 Jahre alt", "Ölkessel"),
        ("Im Ruderverein müssen wir am 27. März wählen", "Ruderverein"),
        ("Look at pg_stat_statements and ~/backup/*.sql", "pg_stat_statements"),
        ("Below 130 per square meter is cheap", "Square meter"),
        ("We fly to Lisbon on 21 May", "Lisbon"),
        ("The valve is broken, the diverter valve", "Diverter valve"),
        ("Die Kita hat uns einen Kitaplatz gegeben", "Kita"),
        ("Call about the boiler at Dad's", "Boiler, Dad"),
        ("It took 31 minutes", None),
        ("18,000 euros at 05:00 UTC", None),
        ("ok great", None),
        ("👍", None),
        ("", None),
    ],
)
def test_a_topic_is_named_by_what_it_is_about(text: str, name: str | None) -> None:
    assert topic_name(text) == name


@given(st.text(max_size=500))
def test_chips_and_names_keep_to_one_short_line(text: str) -> None:
    short = chip(text)
    assert len(short) <= CHIP_CHARS
    assert "\n" not in short
    name = topic_name(text)
    assert name is None or (0 < len(name) <= NAME_CHARS and name == " ".join(name.split()))


@pytest.mark.parametrize(
    "text",
    [
        "Look at pg_stat_statements and ~/backup/*.sql, please.",
        "C:\\_temp\\* is full & a|b <c> is odd.",
        "Dr. Weber comes on 12. Dezember at 05:00, for 18,000 euros, e.g. by train.",
        "12. Dezember passt mir gut.",
        "Book Da Luigi on 12.12. for four.",
        "__init__.py fails, call __enter__ first, and **kwargs or *args come last.",
        "2*3*4 is 24, 5*10^3*2 is a rate, and =SUM(A1:B2)*2*3 is odd.",
        "Versions 2.*.* and 3.*.* need ~/backup/*.sql and ~/x/*.txt* by Monday.",
        "f[0](x) is wrong, see [1](2), arr[i](j) and ![a](b).",
        "a~~b~~c is one name; \\[x\\] \\_y\\_ and mail <ada@ex.org> stay.",
        "> 18,000 euros is too much",
        "- 5 degrees tonight in Bern",
        "# 12 is the flat on the left",
        "The plan is at https://ex.org/a_b?x=1*2*3 since Monday.",
        "Die Miete beträgt z.B. 18.000,00 EUR p.a. und steigt ca. 3 % i.d.R. jährlich.",
        "Es kommt u. a. Dr. med. Weber um 9.30 Uhr, z. B. am 3. Mai, in die Hauptstr. 5.",
        "St. Gallen zahlt 1,5 Mio. Euro, s. S. 12 ff. im Vertrag.",
        "Prof. J. R. R. Tolkien met the U.S. Army at St. John's, p. 12 ff. of vol. 3.",
        "See you at 5 p.m. on Monday, approx. 3 min. walk from No. 4b.",
    ],
)
def test_what_only_looks_like_markup_or_an_end_is_quoted_to_the_letter(text: str) -> None:
    assert sentences(text) == [text]


def test_a_list_of_dates_keeps_its_days() -> None:
    assert sentences("3. Mai: Zahnarzt\n4. Mai: Umzug") == ["3. Mai: Zahnarzt", "4. Mai: Umzug"]
    assert sentences("1. May: off\n2. May: off too") == ["1. May: off", "2. May: off too"]


def test_what_is_cut_off_ends_between_words_and_says_so() -> None:
    for at in range(3_985, 4_001):
        last = sentences("word " * (at // 5) + "x" * (at % 5) + " costs 18,000 euros and 1.250,50 more")[-1]
        assert last.endswith("…")
        assert set(last.rstrip("…").split()) <= {
            "word",
            "x",
            "xx",
            "xxx",
            "xxxx",
            "costs",
            "18,000",
            "euros",
            "and",
        }
    long = "Ada said on Monday that the price went to 1.250.000,00 euros"
    for most in range(20, 60):
        assert chip(long, most).rstrip("…").split()[-1] in long.split()


def test_a_chip_is_what_was_said() -> None:
    assert chip("iPhone screen is broken") == "iPhone screen is broken"
    assert chip("rm -rf on the server was a mistake") == "rm -rf on the server was a mistake"
    assert chip("can you please book a table for two") == "Book a table for two"


@given(st.lists(st.sampled_from([*"_*~`|#><[]()\\.,:0aB-+ä/", "18"]), max_size=12))
def test_no_mark_inside_a_word_is_taken_away(pieces: list[str]) -> None:
    word = f"a{''.join(pieces)}b"
    assert " ".join(sentences(f"see {word} now")) == f"see {word} now"


def test_a_word_that_may_be_an_abbreviation_ends_a_sentence_where_another_begins() -> None:
    assert sentences("I said no. We leave at 5.") == ["I said no.", "We leave at 5."]
    assert sentences("Take platform No. 5, on 3 Jan. at noon.") == ["Take platform No. 5, on 3 Jan. at noon."]


def test_markup_is_taken_off_as_it_would_be_read_out() -> None:
    text = "# Plan\n\n**Bold** _slanted_ `code_x` [a link](https://a.example) ~~gone~~\n\n```\nrm -rf\n```\n"
    assert sentences(text) == ["Plan", "Bold slanted code_x a link gone"]
    assert sentences("1. first\n2. second\n\n> quoted\n- one\n\n| a | b |\n|---|---|\n| c | d |") == (
        ["first", "second", "quoted", "one", "a", "b", "c", "d"]
    )


def test_a_name_does_not_end_in_what_stood_before_its_mark() -> None:
    assert topic_name("boats .") == topic_name("boats !?") == "Boats"


def test_words_are_compared_without_their_endings_and_small_words() -> None:
    assert list(terms("The posts are posted; posting a post")) == ["post"] * 4
    assert list(terms("it is what it is")) == []
    assert list(terms("修理围栏")) == ["修理", "理围", "围栏"]


@pytest.mark.parametrize(
    "text",
    [
        "yes",
        "OK, do it!",
        "continue please",
        "sounds good, thanks",
        "ja, weiter",
        "Hi, how are you today?",
        "Hallo, wie geht's dir?",
    ],
)
def test_terse_words_say_nothing(text: str) -> None:
    assert noise.is_low_signal(text)


def test_words_of_meaning_say_something() -> None:
    assert not noise.is_low_signal("yes, but with concrete")
    assert not noise.is_low_signal("Hello, how is it going with the roof?")


FENCE = profile("fence", "Fence", ["replace the rotten fence post", "order concrete for the post"])
DENTIST = profile("dentist", "Dentist", ["molar hurts", "dentist appointment on tuesday"])


def weigh(text: str, current: str | None, **more: Any) -> str | None:
    return decide(subject_terms(text), [FENCE, DENTIST], current=current, **more).best.id


def test_words_find_their_topic_from_wherever_the_talk_is() -> None:
    assert weigh("is the concrete for the fence post here", "dentist") == "fence"
    assert weigh("does the molar still hurt, what says the dentist", "fence") == "dentist"
    assert weigh("does the molar still hurt, what says the dentist", None) == "dentist"


def test_words_without_meaning_stay_and_strange_ones_begin_a_topic() -> None:
    assert weigh("yes great thanks", "fence") == "fence"
    assert weigh("compile kernel modules with clang for riscv boards", "fence", cue="request") is None
    assert weigh("compile kernel modules", None) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Am 27. März um 7:15 Uhr, 320 Euro pro Person", []),
        ("Tuesday 3 March at 05:00 UTC, 18,000 euros, 31 minutes, 5pm", []),
        ("Hello Mr. Vogt, good morning, thanks!", ["vogt"]),
        ("Drei Zentimeter auf vier Meter, 2 Kubikmeter", []),
        ("The meter broke", ["meter", "broke"]),
    ],
)
def test_dates_amounts_and_addresses_are_no_evidence(text: str, told: list[str]) -> None:
    assert list(subject_terms(text)) == told


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Die Förderung ist da", "Ich warte auf die Förderzusage"),
        ("Der Pflegedienst kommt", "Das ist der Pflegegrad"),
        ("die Steuer ist hoch", "Die Steuererklärung ist fertig"),
        ("the physio is here", "We do physiotherapy"),
        ("Die Häuser sind alt", "Das Haus ist alt"),
    ],
)
def test_forms_and_compounds_of_a_word_count_as_one(one: str, other: str) -> None:
    assert set(subject_terms(one)) & set(subject_terms(other))


STRANGE = "compile the kernel modules with clang for the riscv boards"


def test_a_long_pause_ends_the_visit_and_a_short_one_does_not() -> None:
    assert weigh("concrete arrived", "fence") == "fence"
    little = "the molar again"
    assert weigh(little, "fence", pause_minutes=5_000) == "dentist"
    telling = subject_terms("replace it with a hinge")
    now, later = (
        decide(telling, [FENCE, DENTIST], current="fence", pause_minutes=minutes) for minutes in (1, 5_000)
    )
    assert now.best.id == "fence"
    assert later.best.score < now.best.score


def test_what_goes_on_or_is_one_word_begins_no_topic_while_the_talk_goes_on() -> None:
    assert weigh("hinges", "fence") == "fence"
    assert weigh("hinges", None) is None
    assert weigh(STRANGE, "fence", cue="request") is None
    assert weigh("hinges and riscv and clang", "fence", cue="follow-up") == "fence"
    assert weigh("hinges and molar", "fence", cue="back") == "dentist"


@pytest.mark.parametrize(
    "text", ["And in May we need a bus", "Dann die Tagespauschale", "They quoted less", "Ja, bis Sonntag"]
)
def test_some_beginnings_only_go_on(text: str) -> None:
    assert noise.goes_on(text)
    assert not noise.goes_on(f"Anna says: {text}")


def test_yes_or_no_goes_on_at_whatever_length_it_is_told() -> None:
    assert noise.agrees("Ja, bis dahin nehme ich den Anhänger von meinem Schwager und den Gurt von Petra")
    assert noise.agrees("No. Joel wants the garden, and the station is too far for his knee")
    assert not noise.agrees("Januar passt uns auch")
    assert not noise.agrees("Nobody came to the viewing")


@pytest.mark.parametrize(
    "text", ["Back to the fence", "Ok, zurück zum Zaun", "Noch mal zur Heizung", "As for the trip: no"]
)
def test_a_return_can_be_announced(text: str) -> None:
    assert noise.announces_return(text)
    assert not noise.announces_return("The train goes back to Lisbon")


@given(
    st.lists(st.sampled_from(["fence", "post", "molar", "dentist", "kernel", "clang"]), max_size=8),
    st.floats(0, 1e6),
    st.floats(0, 1e6),
)
def test_the_longer_the_pause_the_less_speaks_for_the_topic_at_hand(
    words: list[str], one: float, other: float
) -> None:
    def stay(pause: float) -> float:
        verdict = decide(words, [FENCE, DENTIST], current="fence", pause_minutes=pause)
        return next(way.score for way in (verdict.best, *verdict.others) if way.id == "fence")

    short, long = sorted((one, other))
    assert stay(short) >= stay(long)


def test_a_name_is_what_comes_again_and_others_do_not_have() -> None:
    said = [
        "The roof leaks above the attic window again.",
        "The roofer was here, he gave a warranty on the flashing.",
        "They quoted new flashing for the roof.",
        "So the roof gets a new flashing by the roofer.",
    ]
    assert topic_name(said) == "Roof, Flashing"
    assert topic_name(said, {"roof": 9}) == "Flashing, Attic"
    assert topic_name(["Kandidat: Sabine Ehret", "Dann Sabine Ehret als Kassenwart", "Für Sabine Ehret"]) == (
        "Sabine Ehret"
    )


SAID = st.lists(
    st.sampled_from(
        [
            "the roof leaks", "Der Kessel ist 31 Jahre alt", "18,000 euros at 05:00", "Monday, 3 March",
            "Hello Mr. Vogt", "pg_stat_statements is on", "we met Marta Nowak", "ok", "um 7:15 Uhr",
        ]
    ),
    min_size=1,
    max_size=6,
)  # fmt: skip


@given(SAID)
def test_a_name_never_is_a_number_a_date_or_a_greeting(said: list[str]) -> None:
    name = topic_name(said)
    assert (name is None) == (not any(map(subject_terms, said)))
    if name is not None:
        assert subject_terms(name)
        assert not set(name.casefold().split()) & {"monday", "march", "euros", "uhr", "hello", "mr", "ok"}
        assert not any(part.isdigit() for part in name.split())


def test_only_names_that_were_given_are_changed_and_only_while_young() -> None:
    young = YoungNames()
    young.given("t", "Attic window")

    def say(number: int, name: str) -> str | None:
        return young.renamed("t", name, {str(number): f"{number} leaks in the roof"}, dict)

    assert [say(number, "Attic window") for number in range(4)] == [None, None, None, "Roof"]
    assert say(4, "My own name") is None
    assert [say(number, "Roof") for number in range(5, 20)] == [None] * 15


def test_what_was_moved_elsewhere_names_a_topic_no_more() -> None:
    young = YoungNames()
    young.given("t", "Molar")
    young.renamed("t", "Molar", {"1": "My molar aches", "2": "The molar again"}, dict)
    young.renamed("t", "Molar", {"3": "The fence needs paint"}, dict)
    assert young.left("t", "Molar", ["1"], {}) is None, "it still is about that"
    assert young.left("t", "My own name", ["2"], {}) is None
    assert young.left("t", "Molar", ["2"], {}) == "Fence, Paint"
    assert young.left("t", "Fence, Paint", ["3"], {}) is None, "nothing is left to name it by"


SOME = st.sampled_from(["fence", "post", "molar", "dentist", "kernel", "clang", "yes", "ok"])


@given(st.lists(SOME, max_size=12))
def test_the_same_words_are_always_sorted_alike(words: list[str]) -> None:
    first = decide(words, [FENCE, DENTIST], current="fence")
    assert first == decide(words, [FENCE, DENTIST], current="fence")
    assert first.best.score >= max((way.score for way in first.others), default=first.best.score)
    assert 0.5 <= first.confidence <= 1


def test_a_topic_that_shares_no_word_is_no_candidate() -> None:
    index = WordIndex()
    index.add("fence", terms("oak fence post"))
    index.add("dentist", terms("molar dentist"))
    assert list(index.scores(terms("a post of oak"))) == ["fence"]
    assert index.scores(terms("yes thanks")) == {}


DOCUMENTS = st.lists(st.tuples(st.sampled_from(["one", "two", "three"]), st.lists(SOME, max_size=5)))


@given(DOCUMENTS, DOCUMENTS, st.lists(SOME, max_size=5))
def test_words_that_came_and_went_leave_nothing_behind(
    staying: list[tuple[str, list[str]]], going: list[tuple[str, list[str]]], asked: list[str]
) -> None:
    fresh, used = WordIndex(), WordIndex()
    for id_ in ("one", "two", "three"):
        fresh.add(id_, [])
    for id_, words in [*staying, *going]:
        used.add(id_, words)
    for id_, words in going:
        used.remove(id_, words)
    for id_ in ("one", "two", "three"):
        used.add(id_, [])
    for id_, words in staying:
        fresh.add(id_, words)
    assert used.scores(asked) == pytest.approx(fresh.scores(asked))


SORTING = Sorting([Exchange(()), Exchange(())], [])


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "no json",
        "[]",
        '{"exchanges": []}',
        '{"exchanges": [{"n": 1, "name": "Fence"}]}',
        '{"exchanges": [{"n": 1, "name": "Fence"}, {"n": 1, "name": "Gate"}]}',
        '{"exchanges": [{"n": 1, "name": "Fence"}, {"n": 2, "name": " "}]}',
        '{"exchanges": [{"n": 1, "name": "Fence"}, {"n": 2, "name": "2026"}]}',
        '{"exchanges": [{"n": 1, "name": "Fence"}, {"n": 2, "topicId": "gone"}]}',
        '{"exchanges": [{"n": 1, "name": "Fence"}, {"n": 2, "name": 7}]}',
        '{"exchanges": [{"n": 1, "name": "Fence"}, {"n": 2, "name": "Gate", "more": 1}]}',
    ],
)
def test_answers_that_do_not_fit_are_refused(reply: str) -> None:
    with pytest.raises(BadAnswer):
        SORTING.checked(reply)


def test_a_good_answer_is_trimmed_to_size() -> None:
    long = {"n": 2, "name": "a  b " * 40, "summary": "word " * 30, "taskId": "x"}
    reply = f"Sure: {json.dumps({'exchanges': [long, {'n': 1, 'name': 'Fence'}]})}"
    first, second = SORTING.checked(reply)
    assert (first.n, first.name) == (1, "Fence")
    assert second.name is not None
    assert len(second.name) <= NAME_CHARS
    assert len(second.summary) <= CHIP_CHARS
    assert (second.topicId, second.taskId) == (None, None)


def test_the_audit_is_off_by_default(tmp_path: Path) -> None:
    Audit(tmp_path / "audit.jsonl", AuditOptions, ManualClock()).write("classify", {})
    assert list(tmp_path.iterdir()) == []


def test_the_audit_is_rotated_and_bounded_when_it_is_on(tmp_path: Path) -> None:
    options = AuditOptions.model_validate({"enabled": True, "maxBytes": 1024, "keepFiles": 2})
    audit = Audit(tmp_path / "logs" / "audit.jsonl", lambda: options, ManualClock())
    for number in range(200):
        audit.write("classify", {"number": number, "text": "x" * 50})
    files = sorted((tmp_path / "logs").iterdir())
    assert [file.name for file in files] == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]
    assert all(file.stat().st_size <= 1024 for file in files)
    assert json.loads(files[0].read_text().splitlines()[-1])["number"] == 199
