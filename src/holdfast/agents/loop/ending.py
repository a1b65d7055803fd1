"""How a turn ends: committed, failed, cut off, or stopped with its chain or the whole home.

What is stopped is marked in one transaction: nothing more can come of the chain from then on, what waits is
gone, and turns that run are asked to end. They are then stopped where they run, and waited for.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field
from typing_extensions import TypedDict

from holdfast.agents.approvals import requests
from holdfast.agents.loop import ending
from holdfast.agents.loop.asks import ASK, Deliver, Terms
from holdfast.agents.loop.calling import Calling
from holdfast.agents.loop.journal import Journal
from holdfast.agents.loop.parts import Ended, TurnEnd, TurnHook
from holdfast.agents.models.types import ModelReply
from holdfast.context import Trust, is_silent
from holdfast.errors import HoldfastError
from holdfast.keys import parse_key
from holdfast.log import (
    Classification,
    EntryDraft,
    EntryType,
    NoteDraft,
    Outcome,
    Session,
    Turn,
    TurnStatus,
    Tx,
    agenda,
    audit,
    chains,
    entries,
    heard_by,
    notes,
    outbox,
    sessions,
    turns,
)
from holdfast.log.turns import Committed
from holdfast.records import record

if TYPE_CHECKING:
    from holdfast.agents.models.failures import Attempt


log = logging.getLogger(__name__)
NOT_THEIRS: Final = (
    "not everyone there may read what this turn was given. The owner can send it there by asking for it."
)
RESUME_HINT: Final = "/resume goes on with it."
FLUSH: Final = "flush"
_MOST_ATTEMPTS: Final = 20
# Without the word itself: what warns of a word must not be where it is found next.
SPOKEN: Final = (
    "[system:note] The word for silence in your last reply stood in something that you had read. Data "
    "decides nothing, so your last reply was sent. If you quoted, all is well; if you meant silence, it is "
    "too late for that now."
)


def commit(
    tx: Tx, journal: Journal, calling: Calling, terms: Terms, reply: ModelReply | None, job: agenda.Job
) -> Committed | None:
    """The turn's last words, what it cost, and its delivery; None if someone spoke meanwhile."""
    last, pressure = calling.last, calling.pressure
    outcome = Outcome(
        model=None if last is None else str(last.model),
        usage=journal.spent.json(),
        context_tokens=None if last is None or pressure is None else pressure.used,
        meta={
            "calls": calling.number,
            "finish": None if last is None else last.finish,
            "attempts": [_attempt(one) for one in calling.attempts[-_MOST_ATTEMPTS:]] or None,
        },
    )
    done = journal.commit(tx, reply, outcome, job)
    if done is not None:
        deliver_reply(tx, done.turn, terms)
    return done


def fail(
    tx: Tx, journal: Journal, terms: Terms, error: HoldfastError, job: agenda.Job, said: str = ""
) -> Turn | None:
    """End a turn that brings no reply: visible in the log with what was `said` of one, told to whoever
    waits; None if it has ended."""
    turn = journal.turn
    now = turns.get(tx, turn.id)
    if now.status is not TurnStatus.RUNNING or now.attempt != turn.attempt:
        return None
    assert job.item.owner is not None
    job.settle(tx, agenda.Fail(job.item.owner, error.message, final=True))
    if said:
        journal.partial(tx, said, "broke off")
        now = turns.get(tx, turn.id)
    text = f"Turn {turn.number} failed: {error.message}"
    note(tx, now, text, {"event": "turn.failed", "code": error.code, "hint": error.hint})
    ended = turns.end(tx, now, TurnStatus.FAILED, error.message, usage=_used(journal, now))
    if terms.deliver is not None:
        _post(tx, ended, terms, {"text": "", "error": error.message, "hint": error.hint, "code": error.code})
    release_steered(tx, ended)
    return ended


def stop(tx: Tx, journal: Journal, job: agenda.Job) -> Turn:
    """End a turn because someone asked for it; `Conflict` if it has ended."""
    now = turns.get(tx, journal.turn.id)
    reason = job.item.error or "cancelled"
    assert job.item.owner is not None
    job.settle(tx, agenda.Fail(job.item.owner, reason))
    return turns.end(tx, now, TurnStatus.CANCELLED, reason, usage=_used(journal, now))


def _used(journal: Journal, now: Turn) -> dict[str, Any]:
    """All that the turn used, with what was summarised for it."""
    return turns.added(journal.spent.json(), (now.meta or {}).get(turns.BESIDE))


def cut_off(tx: Tx, item: agenda.Item, hooks: Sequence[TurnHook] = (), default_agent: str = "") -> None:
    """The agenda's word that an attempt ended by no doing of its own, or that a turn was cancelled.

    A turn goes on by itself, however often it is cut off, until a call was under way that must not be
    repeated: then it is not tried again unasked, and whoever waits for it is told so where they wait.
    """
    turns.interrupted(tx, item)
    turn = turns.get(tx, str(item.payload["turnId"]))
    if turn.status is TurnStatus.CANCELLED:
        _tell_failed(tx, turn, hooks, default_agent)
    if turn.status is not TurnStatus.INTERRUPTED:
        return
    turn, begun = _in_doubt(tx, turn)
    if begun and item.status is agenda.Status.QUEUED:
        item = agenda.cancel(tx, item.id, reason="a call was under way that is not repeated unasked")
    if item.status.ended:
        _tell_interrupted(tx, turn, begun, default_agent)
        turn = turns.settle_usage(tx, turn)
        release_steered(tx, turn)
        _tell_failed(tx, turn, hooks, default_agent)


def _in_doubt(tx: Tx, turn: Turn) -> tuple[Turn, list[str]]:
    """The calls that were under way; one that still waits for a person has not begun, so its note goes."""
    noted = (turn.meta or {}).get("unfinished") or ()
    unasked = {one.tool for one in requests.waiting_in(tx, turn.id)} if noted else set()
    left = [call for call in noted if call.get("name") not in unasked]
    if len(left) < len(noted):
        turn = turns.note(tx, turn, {"unfinished": left or None})
    return turn, [str(call.get("name")) for call in left]


def _tell_interrupted(tx: Tx, turn: Turn, begun: Sequence[str], default_agent: str) -> None:
    """In the log, and on the surface that the reply would have gone to; a reply may come there yet."""
    what = f" while {', '.join(begun)} ran" if begun else ""
    doubt = "; whether that took effect is not known" if begun else ""
    text = f"Turn {turn.number} was interrupted{what} and is not repeated by itself{doubt}."
    note(tx, turn, f"{text} {RESUME_HINT}", {"event": "turn.interrupted"})
    terms = _terms(turn, default_agent)
    if terms.deliver is not None:
        why = f"the turn was interrupted{what} and is not repeated by itself{doubt}"
        body = {"text": "", "error": why, "hint": RESUME_HINT, "code": "turn_interrupted"}
        _post(tx, turn, terms, body, key=f"interrupted:{turn.id}:{turn.attempt}")


def _terms(turn: Turn, default_agent: str) -> Terms:
    return Terms.read((turn.meta or {}).get(ASK) or {}, default_agent)


def _tell_failed(tx: Tx, turn: Turn, hooks: Sequence[TurnHook], default_agent: str) -> None:
    terms = _terms(turn, default_agent)
    end = TurnEnd(turn=turn, session=sessions.get(tx, turn.session_id), terms=terms)
    for hook in hooks:
        hook.failed(tx, end)


def release_steered(tx: Tx, turn: Turn) -> list[Turn]:
    """What was said into a turn that ended without answering it gets turns of its own."""
    waiting = [str(id_) for id_ in (turn.meta or {}).get("steered") or ()]
    if not waiting:
        return []
    session = sessions.get(tx, turn.session_id)
    meta = {ASK: (turn.meta or {}).get(ASK, {})}
    return [
        turns.accept(tx, session, None, key=f"steered:{entry.id}", meta=meta, said=entry).turn
        for entry in entries.get_many(tx, waiting)
    ]


def note(tx: Tx, turn: Turn, text: str, source: Mapping[str, Any]) -> None:
    """An event of the turn, for people; no model is shown it."""
    draft = EntryDraft(
        content=text,
        type=EntryType.SYSTEM,
        role="system",
        audience=turn.audience,
        session_key=turn.session_key,
        session_id=turn.session_id,
        turn_id=turn.id,
        status=Classification.CLASSIFIED,
        code="filtered_non_semantic",
        source=source,
    )
    entries.append(tx, draft)


def tell(tx: Tx, turn: Turn, terms: Terms, text: str) -> None:
    """A word of the runtime before a turn's reply: in the log, and on the surface that the reply goes to."""
    note(tx, turn, text, {"event": "session.left"})
    if terms.deliver is not None:
        _post(tx, turn, terms, {"text": text}, key=f"told:{turn.id}")


def tell_spoken(tx: Tx, turn: Turn) -> None:
    """Tell the agent, with its next turn, that a reply went out although it looked like silence."""
    draft = NoteDraft(
        key=f"spoken:{turn.id}",
        session_key=turn.session_key,
        audience=turn.audience,
        kind="silence-repeated",
        text=SPOKEN,
        trust=Trust.OPERATOR.label,
        source="holdfast/loop",
    )
    notes.post(tx, draft)


def accept_flush(tx: Tx, session: Session, turn: Turn, terms: Terms) -> Turn:
    """The silent turn that writes lasting notes, before whatever else waits in the session's lane."""
    key = f"flush:{session.id}:{session.compaction_count}"
    return turns.accept(
        tx,
        session,
        None,
        key=key,
        trigger=FLUSH,
        due_at=turn.accepted_at,
        max_attempts=1,
        meta={ASK: terms.json()},
        chain_id=turn.chain_id,
    ).turn


def _attempt(tried: Attempt) -> dict[str, Any]:
    told = {"model": str(tried.ref), "tookMs": tried.took_ms, "credential": tried.credential}
    more = {
        "reason": tried.reason,
        "message": tried.message[:500] or None,
        "partial": tried.partial[:2_000] or None,
        "waitedMs": tried.waited_ms or None,
    }
    return {name: value for name, value in (told | more).items() if value is not None}


def deliver_reply(tx: Tx, turn: Turn, terms: Terms) -> None:
    if terms.deliver is None or turn.reply_id is None:
        return
    text = entries.get(tx, turn.reply_id).content
    if not is_silent(text):
        _post(tx, turn, terms, {"text": text, "finish": (turn.meta or {}).get("finish")})


def may_speak_at(to: Deliver, turn: Turn, terms: Terms) -> bool:
    """Whether a turn's words may go there: what the owner asks for goes where they say. What anybody or
    anything else began speaks only to those who may read all that stood in its prompt."""
    return terms.owner_sent or (to.heard is not None and heard_by(to.heard).may_read(turn.audience))


def _post(tx: Tx, turn: Turn, terms: Terms, body: Mapping[str, Any], *, key: str | None = None) -> None:
    to = terms.deliver
    assert to is not None
    if not may_speak_at(to, turn, terms):
        log.warning("what turn %s said is not for those who hear %s", turn.id, to.target)
        note(tx, turn, f"Not delivered to {to.target}: {NOT_THEIRS}", {"event": "delivery.withheld"})
        return
    payload = {**to.payload, **body, "turnId": turn.id, "sessionKey": turn.session_key}
    named = key or f"reply:{turn.id}"
    posted = outbox.post(tx, outbox.Parcel(key=named, kind=to.kind, target=to.target, payload=payload))
    if terms.owner_sent:
        by = f"agent:{terms.agent_id}"
        audit.note(tx, "delivery.sent", to.target, by=by, behalf_of=terms.sender, delivery=posted.id)


_LEFT: Final = "a new session was begun"


@record
class StoppedOut(TypedDict):
    stopped: int
    chains: list[str]
    ended: Annotated[dict[str, int], Field(description="How many of each sort ended.")]
    stillRunning: Annotated[list[str], Field(description="Turns that had not ended yet after ten seconds.")]
    text: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """What was stopped, and which turns had not ended yet when that was told."""

    chains: tuple[str, ...] = ()
    ended: tuple[Ended, ...] = ()
    running: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """A sentence for whoever stopped it."""
        if not self.ended and not self.chains:
            return "Nothing was running."
        said = f"Stopped {listed(self.ended) or 'what was left of it'}."
        late = len(self.running)
        return f"{said} {late} of them {'is' if late == 1 else 'are'} still winding up." if late else said

    def and_then(self, more: Stopped) -> Stopped:
        chains_ = tuple(dict.fromkeys((*self.chains, *more.chains)))
        return Stopped(chains_, _sum([*self.ended, *more.ended]), more.running)

    def json(self) -> StoppedOut:
        return {
            "stopped": sum(one.count for one in self.ended),
            "chains": list(self.chains),
            "ended": {one.what: one.count for one in self.ended},
            "stillRunning": list(self.running),
            "text": self.text,
        }


@dataclass(frozen=True, slots=True)
class Marked:
    """What was marked in a transaction: the agenda items and ids of turns that still have to be stopped."""

    chains: tuple[str, ...] = ()
    ended: tuple[Ended, ...] = ()
    items: tuple[str, ...] = ()
    turns: tuple[str, ...] = ()


def stop_chains(
    tx: Tx,
    ids: Sequence[str],
    reason: str,
    hooks: Sequence[TurnHook],
    default_agent: str,
    *,
    leaving: bool = False,
) -> Marked:
    """Have nothing more come of these chains, and end all that lives in them. Where a session is only left,
    what saves lasting notes is let finish."""
    ended: list[Ended | None] = []
    items: dict[str, str] = {}
    for id_ in ids:
        chains.stop(tx, id_, reason)
        ended += [one for hook in hooks for one in hook.chain_stopped(tx, id_, reason)]
        live = [one for one in _live_turns(tx, id_) if not (leaving and one[1].trigger == ending.FLUSH)]
        running = _cancelled(tx, [item for item, _ in live], reason, hooks, default_agent)
        items |= {item.id: turn.id for item, turn in live if item.id in running}
        ended.append(Ended(len(live), "turn"))
    return Marked(tuple(ids), _sum(ended), tuple(items), tuple(items.values()))


def stop_background(
    tx: Tx, ids: Sequence[str], session: Session | None, hooks: Sequence[TurnHook]
) -> tuple[Ended, ...]:
    """End what a session, and those that were spawned in the chains, set going beside their turns.

    After the turns have ended: what they wait for must not come while they could still go on with it.
    """
    children = [child for id_ in ids for child in _child_sessions(tx, id_)]
    whose = [*([] if session is None else [session]), *children]
    return _sum([hook.stopped(tx, one) for one in whose for hook in hooks])


def _live_turns(tx: Tx, chain_id: str) -> list[tuple[agenda.Item, turns.Turn]]:
    found = turns.get_many(tx, chains.live_turns(tx, chain_id))
    items = [(agenda.find(tx, turn.agenda_id), turn) for turn in found if turn.agenda_id is not None]
    return [(item, turn) for item, turn in items if item is not None and not item.status.ended]


def _child_sessions(tx: Tx, chain_id: str) -> list[Session]:
    """The sessions that were spawned in a chain, with what they set going in the background."""
    keys = [key for key in chains.sessions_of(tx, chain_id) if parse_key(key).is_subagent]
    return [session for key in keys if (session := sessions.active(tx, key)) is not None]


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """What ended with a session; `stop` are the agenda items of turns that still have to be stopped."""

    ended: tuple[Ended, ...] = ()
    stop: tuple[str, ...] = ()

    @property
    def told(self) -> str:
        """A sentence for whoever left; empty if nothing ended."""
        return f"Ended with the former session: {listed(self.ended)}." if self.ended else ""


def end_session(tx: Tx, left: Session, hooks: Sequence[TurnHook], default_agent: str) -> SessionEnded:
    """End the turns of a session and what else belongs to it: whatever began there ends wherever it is."""
    began = [chain.id for id_ in chains.live_in(tx, left.key) if (chain := _begun_in(tx, id_, left))]
    marked = stop_chains(tx, began, _LEFT, hooks, default_agent, leaving=True)
    live = [item for item in agenda.listing(tx, kinds=turns.KINDS, lane=left.key) if _is_of(tx, item, left)]
    rest = [item for item in live if item.id not in marked.items]
    stop = [*marked.items, *_cancelled(tx, rest, _LEFT, hooks, default_agent)]
    others = [ended for hook in hooks if (ended := hook.reset(tx, left)) is not None]
    return SessionEnded(_sum([*marked.ended, Ended(len(rest), "turn"), *others]), tuple(stop))


def _begun_in(tx: Tx, chain_id: str, session: Session) -> chains.Chain | None:
    """A chain of which something followed, if it began in a session; a turn alone is ended as one."""
    chain = chains.find(tx, chain_id)
    return chain if chain is not None and chain.session_key == session.key else None


def _cancelled(
    tx: Tx, items: Sequence[agenda.Item], reason: str, hooks: Sequence[TurnHook], default_agent: str
) -> list[str]:
    """Cancel turns by their items; those that run have still to be stopped."""
    running: list[str] = []
    for item in items:
        after = agenda.cancel(tx, item.id, reason=reason)
        if after.status is agenda.Status.CANCELLED:
            ending.cut_off(tx, after, hooks, default_agent)
        else:
            running.append(item.id)
    return running


def _sum(ended: Sequence[Ended | None]) -> tuple[Ended, ...]:
    """What ended, each sort once."""
    counts: dict[str, int] = {}
    for one in ended:
        if one is not None:
            counts[one.what] = counts.get(one.what, 0) + one.count
    return with_any([Ended(count, what) for what, count in counts.items()])


def with_any(ended: Sequence[Ended]) -> tuple[Ended, ...]:
    """Those of which there was at least one."""
    return tuple(one for one in ended if one.count)


def listed(ended: Sequence[Ended]) -> str:
    """`1 turn and 2 background commands`."""
    said = [f"{one.count} {one.what}{'' if one.count == 1 else 's'}" for one in ended]
    return " and ".join([", ".join(said[:-1]), said[-1]]) if len(said) > 1 else "".join(said)


def _is_of(tx: Tx, item: agenda.Item, session: Session) -> bool:
    """A lane is shared by all sessions that its key ever had. What saves lasting notes is let finish."""
    turn = turns.get(tx, str(item.payload["turnId"]))
    return turn.session_id == session.id and turn.trigger != ending.FLUSH
