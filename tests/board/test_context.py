"""Continuity: layer A always, recall when it is wanted and in time, and answers that are never stale."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from builders import PATIENCE
from holdfast.board import ingest, routing, spaces, topics
from holdfast.board.context import ContextAsk, came_later, has_signal, present_first, wants_recall
from holdfast.board.context_room import Board
from holdfast.board.present import stand_of
from holdfast.board.recall import Recalled, Recollection, Wanted
from holdfast.board.search import Found
from holdfast.board.timeline import timeline
from holdfast.board.visibility import EVERYTHING, Sight
from holdfast.clock import ManualClock
from holdfast.config.board import BoardConfig
from holdfast.log import FOR_OWNER, OWNER, EntryDraft, Store, entries

KEY = "discord:dm:7"


class Scripted:
    """An index that answers what it is told, when it is let."""

    def __init__(self, *positions: int, confidence: float = 1.0) -> None:
        self.positions = list(positions)
        self.confidence = confidence
        self.let = threading.Event()
        self.let.set()
        self.asked: list[Wanted] = []

    def search(self, wanted: Wanted) -> Recollection:
        self.asked.append(wanted)
        assert self.let.wait(4 * PATIENCE)
        found = [Recalled("log", 0.5, position=at, parts={"lexical": 0.5}) for at in self.positions]
        return Recollection(found, [], "text", confidence=self.confidence)


def say(store: Store, text: str, **fields: Any) -> int:
    with store.write(OWNER) as tx:
        return entries.append(tx, EntryDraft(content=text, role="user", **fields)).entry.position


def board_of(store: Store, recall: Scripted, **options: Any) -> Board:
    config = BoardConfig.model_validate(options)
    return Board(store, lambda: config, recall=recall)


def test_recall_that_is_late_leaves_layer_a_alone_and_says_so(sqlite_store: Store) -> None:
    recall = Scripted(say(sqlite_store, "said long ago"))
    say(sqlite_store, "said just now", session_key=KEY)
    recall.let.clear()
    board = board_of(sqlite_store, recall, contextFetchTimeoutMs=1)
    ask = ContextAsk(q="what was said about it?", sight=Sight(reader=OWNER, session_key=KEY), mode="full")
    late = board.continuity.build(ask)
    recall.let.set()
    assert late.late
    assert late.layers == ("A:timeline",)
    assert "said just now" in late.block
    assert "late" in late.block
    board.close()


class Broken(Scripted):
    def search(self, wanted: Wanted) -> Recollection:
        raise RuntimeError("the index is damaged")


def test_recall_that_fails_leaves_layer_a_alone_and_says_so(sqlite_store: Store) -> None:
    say(sqlite_store, "said just now", session_key=KEY)
    board = board_of(sqlite_store, Broken())
    made = board.continuity.build(
        ContextAsk(q="what was said?", sight=Sight(reader=OWNER, session_key=KEY), mode="full")
    )
    assert made.layers == ("A:timeline",)
    assert "Semantic recall failed" in made.block
    assert "damaged" not in made.block
    board.close()


def test_many_recalls_at_once_wait_for_a_place_and_all_get_theirs(sqlite_store: Store) -> None:
    recall = Scripted(say(sqlite_store, "said long ago"))
    recall.let.clear()
    board = board_of(sqlite_store, recall)
    asks = [
        ContextAsk(q="what was said long ago?", sight=Sight(reader=OWNER), mode="full", max_chars=2000 + n)
        for n in range(12)
    ]
    with ThreadPoolExecutor(12) as pool:
        made = [pool.submit(board.continuity.build, ask) for ask in asks]
        recall.let.set()
        assert not any(one.result().late for one in made)
    board.close()


def test_a_slow_recall_is_not_kept_as_the_answer(sqlite_store: Store) -> None:
    recall = Scripted(say(sqlite_store, "said long ago"))
    patience = {"contextFetchTimeoutMs": 1}
    config = [BoardConfig.model_validate(patience), BoardConfig()]
    board = Board(sqlite_store, lambda: config[0], recall=recall)
    recall.let.clear()
    ask = ContextAsk(q="what was said long ago?", sight=Sight(reader=OWNER), mode="full")
    assert board.continuity.build(ask).late
    recall.let.set()
    config.pop(0)
    assert "said long ago" in board.continuity.build(ask).block
    board.close()


def test_the_same_question_is_given_the_kept_answer_until_something_is_written(sqlite_store: Store) -> None:
    recall = Scripted()
    board = board_of(sqlite_store, recall)
    ask = ContextAsk(q="the leaking valve", sight=Sight(reader=OWNER, session_key=KEY))
    first = board.continuity.build(ask)
    assert board.continuity.build(ask) is first
    say(sqlite_store, "it leaks more", session_key=KEY)
    again = board.continuity.build(ask)
    assert "it leaks more" in again.block
    with sqlite_store.write(OWNER) as tx:
        topic = topics.upsert(tx, "Valve").topic
    board.continuity.build(ask)
    with sqlite_store.write(OWNER) as tx:
        item = routing.Routed(int(tx.now), topic.id, topic.name, "the anchor words")
        routing.remember(tx, KEY, item, BoardConfig().routing_memory, FOR_OWNER)
    assert "the anchor words" in board.continuity.build(ask).block
    board.close()


def test_words_that_say_nothing_are_filled_up_in_a_board_chat(sqlite_store: Store) -> None:
    with sqlite_store.write(OWNER) as tx:
        topic = topics.upsert(tx, "Harbour dredging").topic
    recall = Scripted()
    board = board_of(sqlite_store, recall)
    board.continuity.build(
        ContextAsk(q="continue", sight=Sight(reader=OWNER, session_key=f"clawboard:topic:{topic.id}"))
    )
    assert [one.question for one in recall.asked] == ["continue Harbour dredging"]
    board.continuity.build(ContextAsk(q="continue", sight=Sight(reader=OWNER, session_key=KEY)))
    assert len(recall.asked) == 1
    board.close()


@pytest.mark.parametrize(
    ("mode", "q", "board", "wanted"),
    [
        ("cheap", "the leaking valve", True, False),
        ("full", "", False, True),
        ("patient", "ok", False, True),
        ("auto", "ok", False, False),
        ("auto", "yes, do it", False, False),
        ("auto", "the leaking valve", False, True),
        ("auto", "continue", True, True),
        ("auto", "", True, False),
    ],
)
def test_when_the_history_is_searched(mode: Any, q: str, board: bool, wanted: bool) -> None:
    assert wants_recall(mode, q, board=board) is wanted


def test_signal() -> None:
    assert has_signal("PostgreSQL")
    assert not has_signal("ok")
    assert not has_signal("👍")


def test_what_recall_finds_but_the_view_hides_is_not_shown(sqlite_store: Store) -> None:
    with sqlite_store.write(OWNER) as tx:
        hidden = topics.upsert(tx, "Hidden", tags=["space:Far"]).topic
        topics.upsert(tx, "Near", tags=["space:Near"])
    recall = Scripted(say(sqlite_store, "a secret of the far space", topic_id=hidden.id))
    board = board_of(sqlite_store, recall)
    sight = Sight(reader=OWNER, space_id="space-near", allowed_ids=frozenset(("space-near",)))
    made = board.continuity.build(ContextAsk(q="a secret of the far space?", sight=sight, mode="full"))
    assert "B:semantic" not in made.layers
    assert hidden.id not in str(made.data)
    board.close()


@pytest.mark.parametrize(("confidence", "shown"), [(0.42, 3), (0.6, 6), (0.9, 9)])
def test_the_less_sure_it_is_that_anything_answers_the_fewer_finds_are_shown(
    sqlite_store: Store, confidence: float, shown: int
) -> None:
    things = (
        "pump",
        "hinge",
        "kettle",
        "ladder",
        "lantern",
        "shovel",
        "basket",
        "anchor",
        "candle",
        "helmet",
    )
    told = [say(sqlite_store, f"The {thing} of the harbour is {thing} blue") for thing in things]
    board = board_of(sqlite_store, Scripted(*told, confidence=confidence))
    made = board.continuity.build(ContextAsk(q="harbour colours", sight=Sight(reader=OWNER), max_chars=4000))
    assert made.block.count("of the harbour is") == shown
    board.close()


def test_what_waits_to_be_sorted_is_told_in_a_session_that_has_a_space(sqlite_store: Store) -> None:
    with sqlite_store.write(OWNER) as tx:
        spaces.upsert(tx, "Garden")
        spaces.upsert(tx, "Office")
        spaces.connect(tx, "space-office", {"space-garden": False})
    say(sqlite_store, "The pump is repaired", session_key=KEY, space_id="space-garden")
    with sqlite_store.write(OWNER) as tx:
        waiting = ingest.prepare(tx, EntryDraft(content="It leaks again", role="user", session_key=KEY))
        entry = entries.append(tx, waiting).entry
    assert (entry.space_id, entry.given_space, entry.topic_id) == ("space-garden", None, None)
    say(sqlite_store, "Since noon", session_key=KEY)  # written before it was known where it counts
    board = board_of(sqlite_store, Scripted())

    def block(space: str | None = None, *, pending: bool = True) -> str:
        sight = Sight(reader=OWNER, session_key=KEY, space_id=space)
        return board.continuity.build(
            ContextAsk(q="ok", sight=sight, mode="cheap", include_pending=pending)
        ).block

    assert "It leaks again" in block()
    assert "Since noon" in block()
    assert "It leaks again" not in block(pending=False)
    assert "It leaks again" not in block("space-office")
    board.close()


def test_what_is_over_comes_after_what_took_its_place(sqlite_store: Store, clock: ManualClock) -> None:
    with sqlite_store.write(OWNER) as tx:
        topic = topics.upsert(tx, "Cutover").topic.id
    texts = (
        "The cutover of the orders database is on Saturday 7 March.",
        "We move the cutover of the orders database to Saturday 14 March.",
        "The dinner moved to Saturday 21 March.",
    )
    for text in texts:
        clock.advance(hours=1)
        say(sqlite_store, text, topic_id=topic)
    with sqlite_store.read(OWNER) as tx:
        said = timeline(tx, EVERYTHING, ("topic_id", topic), limit=3)
    scored = zip(said, (0.9, 0.3, 0.2), strict=True)
    found = [Found(one.entry, score, {"lexical": score}, one.text) for one, score in scored]
    ordered = present_first(found)
    assert [one.text for one in ordered] == [texts[1], texts[0], texts[2]]
    assert ordered[0].score == pytest.approx(0.9)
    for one in ordered:
        assert sum(one.parts.values()) == pytest.approx(one.score)
    assert present_first(found[1:]) == found[1:]


def test_a_correction_that_shares_no_word_with_what_it_corrects_stands_before_it(
    sqlite_store: Store, clock: ManualClock
) -> None:
    with sqlite_store.write(OWNER) as tx:
        topic = topics.upsert(tx, "Dentist").topic.id
    texts = ("The dentist is on Tuesday at 14:00.", "Bring the X-ray.", "Moved to Thursday.")
    for text in texts:
        clock.advance(minutes=2)
        say(sqlite_store, text, topic_id=topic)
    with sqlite_store.read(OWNER) as tx:
        said = timeline(tx, EVERYTHING, ("topic_id", topic), limit=3)
    find = Found(said[0].entry, 0.9, {"lexical": 0.9}, said[0].text)
    ordered = present_first([find, *came_later("When is the dentist?", [find], said)])
    assert [one.text for one in ordered][:2] == [texts[2], texts[0]]


def test_what_was_said_later_in_the_topic_of_a_find_is_weighed_with_it(
    sqlite_store: Store, clock: ManualClock
) -> None:
    with sqlite_store.write(OWNER) as tx:
        topic = topics.upsert(tx, "Riso").topic.id
    texts = (
        "I want a riso edition of the bread letters, 80 copies in two colours.",
        "Medium blue and yellow actually.",
        "Good night!",
        "Shall I order paper?",
    )
    for text in texts:
        clock.advance(hours=1)
        say(sqlite_store, text, topic_id=topic)
    with sqlite_store.read(OWNER) as tx:
        said = timeline(tx, EVERYTHING, ("topic_id", topic), limit=4)
    find = Found(said[0].entry, 0.8, {"lexical": 0.8}, said[0].text)
    later = came_later("Which colours for the riso edition?", [find], said)
    assert [one.text for one in later] == [texts[1]]
    assert 0 < later[0].score < find.score
    assert sum(later[0].parts.values()) == pytest.approx(later[0].score)
    before = Found(said[1].entry, 0.8, {"lexical": 0.8}, said[1].text)
    assert texts[0] not in [one.text for one in came_later("Which colours?", [before], said)]


class Silent(Scripted):
    def search(self, wanted: Wanted) -> Recollection:
        return Recollection(confidence=0.1, fits=False)


def test_where_nothing_fits_the_question_does_not_steer_what_is_always_there(sqlite_store: Store) -> None:
    words = " ".join(f"plank{n}" for n in range(60))
    say(sqlite_store, f"{words} carpet {words[::-1]}", session_key=KEY)
    for recall, steered in ((Scripted(), True), (Silent(), False)):
        board = board_of(sqlite_store, recall)
        ask = ContextAsk(
            q="How do I clean a carpet?", sight=Sight(reader=OWNER, session_key=KEY), max_chars=600
        )
        said = board.continuity.build(ask).block.partition("Recent session timeline:")[2]
        assert ("carpet" in said, "plank0 plank1" in said) == (steered, not steered)
        board.close()


@pytest.mark.parametrize(
    ("asked", "matter"),
    [
        ("How does the kitchen stand?", "the kitchen"),
        ("Where are we with the kitchen now?", "the kitchen"),
        ("What's the status of the kitchen?", "the kitchen"),
        ("How far along are we with the kitchen?", "the kitchen"),
        ("How is the kitchen coming along?", "the kitchen"),
        ("How are things with mum's hip?", "mum's hip"),
        ("Wie ist der Stand bei der Küche?", "bei der Küche"),
        ("Wie steht es um die Küche?", "um die Küche"),
        ("Was gibt's Neues vom Steg?", "vom Steg"),
        ("Was ist bei der Küche beschlossen?", "bei der Küche"),
        ("Wie kommt der Umbau voran?", "der Umbau"),
        ("Wie geht's Oma?", "Oma"),
        ("How is it going?", None),
        ("How are you doing today?", None),
        ("Wie geht es dir?", None),
        ("Where did we put the kitchen plans?", None),
        ("Was ist der Preis der Küche?", None),
        ("What is the state capital of Texas?", None),
        ("How far is the moon from the earth?", None),
        ("How far is it to Hamburg?", None),
        ("What's happening in the world?", None),
        ("What's new in Paris?", None),
        ("How is a bee doing without a queen?", None),
        ("Wie weit ist der Mond von der Erde entfernt?", None),
        ("Wie weit ist es nach Hamburg?", None),
        ("Wie kommt man zum Bahnhof?", None),
        ("Wie läuft eine Scheidung ab?", None),
        ("Wie läuft die Anmeldung ab?", None),
        ("Wie geht Risotto?", None),
        ("Wie weit ist die Küche?", "die Küche"),
        ("Wie weit sind unsere Ferienpläne?", "unsere Ferienpläne"),
        ("How far are the kitchen plans?", "the kitchen plans"),
        ("Wie läuft der Umbau?", "der Umbau"),
        ("What's new with the kitchen?", "the kitchen"),
        ("How far did we get with the kitchen?", "the kitchen"),
    ],
)
def test_whether_it_is_asked_how_a_matter_stands_and_which(asked: str, matter: str | None) -> None:
    assert stand_of(asked) == matter


def test_who_asks_how_a_matter_stands_gets_what_was_said_of_it_last(
    sqlite_store: Store, clock: ManualClock
) -> None:
    with sqlite_store.write(OWNER) as tx:
        kitchen, roof = (topics.upsert(tx, name).topic.id for name in ("Kitchen", "Roof"))
    told = [
        "The kitchen stands in the hall, how far it is from the stand!",
        *(f"The {thing} came on the {n}th." for n, thing in enumerate(("oven", "sink", "hob", "tap"), 4)),
        *(f"The {thing} is {look}." for thing, look in (("worktop", "oak"), ("splashback", "blue"))),
        *(f"Tile {n} is laid by {who}." for n, who in enumerate(("Ada", "Bob", "Cem", "Dee", "Eva", "Fay"))),
        "Which handles?",
    ]
    places = []
    for text in told:
        clock.advance(hours=1)
        places.append(say(sqlite_store, text, topic_id=kitchen))
    other = say(sqlite_store, "The roof stands.", topic_id=roof)
    recall = Scripted(places[0], other)
    board = board_of(sqlite_store, recall)

    def block(q: str) -> str:
        return board.continuity.build(ContextAsk(q=q, sight=Sight(reader=OWNER))).block

    asked = block("How does the kitchen stand?")
    assert recall.asked[-1].question == "the kitchen"
    assert all(text in asked for text in told[:-1])
    assert told[-1] not in asked
    assert sum(text in block("Who made the kitchen of the stand?") for text in told) < len(told) - 2
    recall.confidence = 0.5
    say(sqlite_store, "Unsure now.")
    assert sum(text in block("How does the kitchen stand?") for text in told) < 6
    board.close()
