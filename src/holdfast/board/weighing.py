"""Weighing one exchange: what may be chosen, and what goes without saying or is said by the words alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from holdfast.board import heuristic, noise
from holdfast.board.candidates import Place, Weighable
from holdfast.board.exchanges import Episode, Exchange
from holdfast.board.naming import topic_name
from holdfast.board.placing import Batch, Outcome
from holdfast.board.rules import Scope
from holdfast.board.tags import DEFAULT_SPACE
from holdfast.board.tasks import Task
from holdfast.board.visibility import View
from holdfast.board.words import subject_words
from holdfast.config.board import BoardConfig
from holdfast.log import SYSTEM, Reader

MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Open:
    """An exchange that neither a lock nor continuity settles, with all that is needed to weigh it."""

    exchange: Exchange
    text: str
    place: Place
    ahead: Place
    view: View
    hearers: Reader
    space_id: str | None
    current: str | None
    routed: tuple[str, ...]
    episode: Episode | None = None
    """What it goes on with, and may take along to another topic."""

    @property
    def whole(self) -> Exchange:
        """It and those that it goes on with, as one."""
        if self.episode is None:
            return self.exchange
        return Exchange((*self.episode.entries, *self.exchange.entries))


@dataclass(frozen=True, slots=True)
class Weighed:
    candidates: Sequence[Weighable]
    tasks: Sequence[Task]
    verdict: heuristic.Verdict
    pause_minutes: float = 0.0


def by_continuity(found: Open) -> Outcome | None:
    """An answer goes with its question; words that say nothing go on with what was talked about."""
    if found.current is None:
        return None
    if found.exchange.reply:
        reasons = {"text": "an answer goes with its question"}
        return Outcome(method="reply", topic_id=found.current, confidence=0.95, reasons=reasons)
    if noise.is_low_signal(found.text) and not noise.announces_new_thread(found.exchange.asked):
        reasons = {"text": "says nothing new, so it goes on with the thread"}
        return Outcome(method="continuity", topic_id=found.current, confidence=0.9, reasons=reasons)
    return None


def by_words(found: Open, weighed: Weighed) -> Outcome | None:
    """What the words say; None when they say nothing and no thread is there to go on with."""
    best, episode = weighed.verdict.best, found.episode
    if best.id is None and episode is not None and episode.made:
        best = replace(best, id=episode.topic_id)
    name = None if best.id else topic_name([text for text in found.whole.texts if text])
    if best.id is None and name is None:
        if found.current is None:
            return None
        best = replace(best, id=found.current, move="stay")
    return Outcome(
        method="heuristic",
        topic_id=best.id,
        name=name if best.id is None else None,
        space_id=found.space_id,
        confidence=round(weighed.verdict.confidence, 4),
        reasons=reasons(weighed.verdict, found.text),
        beside=[one.profile for one in weighed.candidates],
    )


def by_session(found: Open, options: BoardConfig) -> Outcome | None:
    key = found.exchange.entries[0].session_key
    if not options.auto_topic_by_session or key is None:
        return None
    reasons = {"text": "each session has a topic of its own (autoTopicBySession)"}
    return Outcome(method="session", name=f"Session {key}"[:200], space_id=found.space_id, reasons=reasons)


def opened(batch: Batch, exchange: Exchange, scope: Scope, ahead: Place) -> Open:
    """What may be weighed: topics within sight that the hearers of the exchange may see. What was given a
    space stays in it, and goes under no topic of another."""
    first, given, hearers = exchange.entries[0], exchange.given_space, batch.hearers(exchange)
    key, here = first.session_key, (first.created_at, first.position)
    source = given or scope.space_id or batch.source_space(key)
    within = batch.baseline(source or DEFAULT_SPACE) if given is None else frozenset((given,))
    view = View(within, source)
    routed: tuple[str, ...] = ()
    current: str | None = None
    if key is not None:
        with batch.tx.reading_as(hearers):
            remembered = batch.routed(key, view)
            routed = tuple([item.topic_id for item in remembered])
            if remembered and remembered[-1].ts <= first.created_at:
                current = remembered[-1].topic_id
            else:  # it remembers what came later
                current = batch.history(key, SYSTEM).current(batch.tx, here, ahead)
            topic = None if current is None else batch.topic(current)
        if topic is None or not view.sees(topic.space_ids):
            current = None
    episode = batch.recent.episodes.get(key or "")
    if episode is not None and not episode.goes_on_with(exchange, current):
        episode = None
    return Open(exchange, exchange.text, here, ahead, view, hearers, source, current, routed, episode)


def weigh(batch: Batch, found: Open, retrieved: Sequence[str]) -> Weighed:
    """Hold what is at hand against the topics that it may belong to: all of its episode, as if that had not
    been sorted yet."""
    tx, key, episode = batch.tx, found.exchange.session_key, found.episode
    pause = 0.0 if episode is None else episode.pause_minutes
    if key is not None and episode is None:
        pause = batch.history(key, found.hearers).pause(tx, found.place, found.ahead) / MINUTE_MS
    routed = found.routed if found.current is None else (*found.routed, found.current)
    several = (found.exchange,) if episode is None else (*episode.exchanges, found.exchange)
    words = [word for one in several for word in one.telling]
    with tx.reading_as(found.hearers):
        candidates = batch.recent.gather(tx, words, found.view, routed=routed, retrieved=retrieved)
    verdict = heuristic.decide(
        words,
        _profiles(candidates, episode),
        current=found.current if episode is None else episode.before,
        cue=_cue(several[0].asked),
        pause_minutes=pause,
        asked=frozenset().union(*(one.asked_words for one in several)),
        exchanges=len(several),
        of_session=routed,
    )
    return Weighed(candidates, (), verdict, pause)


def _profiles(candidates: Sequence[Weighable], episode: Episode | None) -> list[heuristic.Profile]:
    """What was said in the topics without what the episode said; of a topic that was made for it nothing is
    left then, unless others went there too."""
    found = [one.profile for one in candidates]
    if episode is None:
        return found
    said = [text for one in episode.exchanges for text in one.texts if text]
    without = [one.without(said, named=episode.made) if one.id == episode.topic_id else one for one in found]
    return [one for one in without if one.id != episode.topic_id or one.size > 0 or not episode.made]


def _cue(text: str) -> heuristic.Cue:
    if noise.announces_new_thread(text):
        return "change"
    if noise.announces_return(text):
        return "back"
    if noise.points_back(text):
        return "follow-up"
    return "request" if noise.is_fresh_request(text) else "none"


def reasons(verdict: heuristic.Verdict, text: str) -> dict[str, Any]:
    best = verdict.best
    written = subject_words(text) if best.evidence else {}
    said = {"stay": "goes on with the thread", "return": "goes back to a topic", "new": "begins a topic"}
    return {
        "text": said[best.move],
        "score": round(best.score, 3),
        "margin": None if verdict.margin > 1e6 else round(verdict.margin, 3),
        "evidence": [written.get(term, term) for term in best.evidence],
        "others": [{"topicId": way.id, "score": round(way.score, 3)} for way in verdict.others],
    }
