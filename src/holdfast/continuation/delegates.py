"""Delegates: spawned at most once; what their return says, where it goes, and who may have it.

Beyond its own session and its ancestors a return goes only where that is allowed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from holdfast import traces
from holdfast.agents.loop.asks import Terms
from holdfast.agents.subagents import Errand, Run, SpawnInput, stats, stopped_on_purpose
from holdfast.config.agents import Continuation
from holdfast.context import Trust, disarmed
from holdfast.continuation import attachments, limits, notices, records, wakes
from holdfast.continuation.dependencies import Dependencies
from holdfast.continuation.state import (
    STAGED_TTL_MS,
    Election,
    Fail,
    Kind,
    Lapse,
    Phase,
    Record,
    Release,
    Returned,
    Spawn,
    Stop,
)
from holdfast.errors import Busy, Conflict, HoldfastError, Unavailable
from holdfast.ids import uuid7
from holdfast.log import Audience, Chain, ChainStopped, Session, Tx, chains, heard_by, sessions

MAX_RECIPIENTS: Final = 200
MAX_DEPTH: Final = 16


@dataclass(frozen=True, slots=True)
class Recipients:
    """Who gets a return, and why someone who was named does not."""

    keys: tuple[str, ...]
    withheld: str | None = None


def crosses(owner: str, targets: Sequence[str], fanout: str | None) -> bool:
    """Whether a return would reach a session beyond its own one and its ancestors."""
    return fanout == "all" or any(key != owner for key in targets)


def target_refusal(
    owner: str, targets: Sequence[str], fanout: str | None, settings: Continuation
) -> str | None:
    """Why these targets may not be used now. Asked at the tool, at dispatch, at release and for tokens."""
    if settings.cross_session_targeting == "enabled" or not crosses(owner, targets, fanout):
        return None
    return "returns to other sessions are disabled (continuation.crossSessionTargeting)"


def recipients(
    tx: Tx, owner: str, election: Election, settings: Continuation, *, child: str | None = None
) -> Recipients:
    """The recipients as things stand now; if the gate was closed meanwhile, the own session alone."""
    closed = target_refusal(owner, election.targets, election.fanout, settings)
    if closed is not None:
        return Recipients((owner,), closed)
    if election.fanout == "tree":
        return Recipients(lineage(tx, owner))
    if election.fanout == "all":
        return _everyone(tx, owner, child)
    if not election.targets:
        return Recipients((owner,))
    known = tuple(key for key in election.targets if key == owner or sessions.active(tx, key) is not None)
    missing = len(election.targets) - len(known)
    return Recipients(known or (owner,), f"{missing} of the named sessions do not exist" if missing else None)


def readable_recipients(tx: Tx, found: Recipients, audience: Audience) -> Recipients:
    """Without those whose hearers may not all read what comes back."""
    keys = tuple(key for key in found.keys if heard_by(sessions.heard_in(tx, key)).may_read(audience))
    if len(keys) == len(found.keys):
        return found
    told = "in some of the sessions others listen who may not read it"
    return Recipients(keys, told if found.withheld is None else f"{found.withheld}; {told}")


def lineage(tx: Tx, owner: str) -> tuple[str, ...]:
    """A session and its ancestors, nearest first."""
    found = [owner]
    while len(found) < MAX_DEPTH:
        session = sessions.active(tx, found[-1])
        parent = None if session is None else session.parent_key
        if parent is None or parent in found:
            break
        found.append(parent)
    return tuple(found)


def _everyone(tx: Tx, owner: str, child: str | None) -> Recipients:
    found = sessions.listing(tx, limit=MAX_RECIPIENTS + 2)
    keys = tuple(dict.fromkeys((owner, *(s.key for s in found if s.key != child))))
    over = len(keys) > MAX_RECIPIENTS
    told = f"there are more sessions than a return may go to; the {MAX_RECIPIENTS} last used got it"
    return Recipients(keys[:MAX_RECIPIENTS], told if over else None)


MOST_RETURNED_CHARS: Final = 16_000
_OPTIONS: Final = "returnOptions"
_RECIPIENT_CONTEXT: Final = "recipientContext"


class ReturnOptions(BaseModel):
    """How the result comes back."""

    model_config = ConfigDict(extra="forbid")

    maxChars: Annotated[  # noqa: N815
        int,
        Field(
            ge=100,
            le=MOST_RETURNED_CHARS,
            description="The longest result; the rest stays in the child's session.",
        ),
    ] = MOST_RETURNED_CHARS
    includeTask: Annotated[bool, Field(description="Quote the task with the result.")] = True  # noqa: N815
    includeStats: Annotated[  # noqa: N815
        bool, Field(description="Tell run time, tokens and cost.")
    ] = False


def kept_options(options: ReturnOptions | None, recipient_context: str | None) -> dict[str, Any]:
    """What of it stands in the record."""
    shaped = None if options is None else options.model_dump(exclude_defaults=True)
    given = {_OPTIONS: shaped or None, _RECIPIENT_CONTEXT: recipient_context}
    return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Return:
    """What a delegate's run came to: its last word, and how many it had said until then."""

    said: str
    status: str
    stats: str = ""
    parts: int = 1


def return_account(record: Record, back: Return) -> str:
    """The runtime's own account of a return, and what its sender says of it: none of the delegate's words."""
    options = _options(record.election.options)
    lines = [
        f"[continuation:delegate-return] [continuation:chain-hop:{record.hop}] "
        f"A delegate ended with status {back.status}; what it says follows, as data."
    ]
    if options.includeTask:
        lines.append(f"Its task was: {notices.own(record)}")
    if back.parts > 1:
        lines.append(f"It spoke {back.parts} times; the parts before the last are in its session.")
    if options.includeStats and back.stats:
        lines.append(f"Stats: {back.stats}")
    context = record.election.options.get(_RECIPIENT_CONTEXT)
    if context:
        lines.append(f"Who sent it off says to whom it goes: {disarmed(str(context))}")
    return "\n".join(lines)


def return_text(record: Record, back: Return) -> str:
    """The delegate's last word, as long as its sender wants it."""
    most = _options(record.election.options).maxChars
    if len(back.said) <= most:
        return back.said or "(nothing)"
    where = record.child_session_key or "the delegate's session"
    return f"{back.said[:most]}\n[… {len(back.said) - most:,} characters more in {where} …]"


def _options(given: Mapping[str, Any]) -> ReturnOptions:
    """As they were checked when the delegate was elected; what an older record holds otherwise is ignored."""
    known = {name: value for name, value in (given.get(_OPTIONS) or {}).items() if name in _OPTION_NAMES}
    return ReturnOptions.model_validate(known)


_OPTION_NAMES: Final = frozenset(ReturnOptions.model_fields)


log = logging.getLogger(__name__)

_SPAWN_KEY: Final = re.compile(r"continuation:(cont-[0-9a-f-]+):[0-9a-f-]+")


def dispatch(tx: Tx, deps: Dependencies, session: Session, record: Record, settings: Continuation) -> Record:
    """Spawn one: its run and the step of the chain in one transaction. A no is told to its session."""
    chain = chain_of(tx, record)
    over = limits.chain_cap(chain, deps.budget(chain, record.agent_id), int(tx.now))
    refused = target_refusal(record.owner, record.election.targets, record.election.fanout, settings)
    why = refused or (None if over is None else over.text)
    if why is not None:
        return notices.settle(tx, records.apply(tx, record, Fail(why, final=True)))
    facts = {
        "delegate.mode": record.election.mode,
        "delegate.delivery": "immediate" if record.election.delay_ms == 0 else "timer",
        "chain.id": chain.id,
        "chain.step.remaining": deps.budget(chain, record.agent_id).left(chain) - 1,
        **traces.about_text(record.election.text),
    }
    if record.election.delay_ms > 0:
        deferred = {"fire.deferred_ms": int(tx.now) - (record.due_at or int(tx.now))}
        traces.mark("continuation.delegate.fire", facts | deferred, parent=record.traceparent)
    with traces.span("continuation.delegate.dispatch", facts, parent=record.traceparent) as own:
        try:
            with tx.savepoint():
                run = _sent_off(tx, deps, session, record, chain, own)
        except HoldfastError as error:
            passing = isinstance(error, Busy | Unavailable | Conflict)
            failed = records.apply(tx, record, Fail(error.message, final=not passing))
            return notices.settle(tx, failed)
    stepped = chains.traced(tx, chains.count(tx, chain), own)
    return records.apply(tx, record, Spawn(run.spawn_key, run.child_key, stepped.steps, own))


def chain_of(tx: Tx, record: Record) -> Chain:
    """The chain of an election; it was opened when that was made."""
    return chains.get(tx, record.chain_id or "")


def _sent_off(
    tx: Tx, deps: Dependencies, session: Session, record: Record, chain: Chain, traceparent: str | None
) -> Run:
    if deps.spawner is None or deps.caller_of is None:
        raise Unavailable("nothing here can spawn delegates", code="no_spawner")
    terms = Terms.read(record.election.terms, record.agent_id)
    key = f"continuation:{record.id}:{uuid7()}"
    asked = SpawnInput(task=_equipped(deps, record), model=record.election.model)
    errand = Errand(key, terms, chain, traceparent)
    return deps.spawner.send_off(tx, deps.caller_of(session, terms), asked, errand)


def _equipped(deps: Dependencies, record: Record) -> str:
    """The task, with its files where the child will find them; a repeat writes the same."""
    election = record.election
    if not election.attachments or deps.workspace is None:
        return election.text
    files = deps.payloads.read(record.id)
    placed = attachments.place(deps.workspace(record.agent_id), record.id, files, election.mount_path)
    return attachments.task_with_files(election.text, placed)


def run_ended(tx: Tx, deps: Dependencies, run: Run) -> None:
    """A run has ended: if it is a delegate's, its return goes where it belongs, once.

    In the transaction in which the run ends. What it says is another session's word. One that someone
    stopped brings nothing back.
    """
    record = _delegate_of(tx, run.spawn_key)
    if record is None or record.phase is not Phase.HANDED_OFF:
        return
    done = records.apply(tx, record, Returned(stopped=stopped_on_purpose(run)))
    if done.delivered:
        status = run.outcome.value if run.outcome is not None else "unknown"
        said = run.said or run.error or ""
        _route(tx, deps, record, Return(said, status, stats(run, int(tx.now)), run.parts))


def run_stopping(tx: Tx, run: Run) -> None:
    """Someone has a run end: what the child elected is not to come, and the delegate brings nothing back."""
    for record in records.live(tx, run.child_key):
        if record.chain_id == run.chain_id:
            records.apply(tx, record, Stop(run.stop_reason or "stopped"))


def _delegate_of(tx: Tx, spawn_key: str) -> Record | None:
    found = _SPAWN_KEY.fullmatch(spawn_key)
    return None if found is None else records.find(tx, found[1])


def _route(tx: Tx, deps: Dependencies, record: Record, back: Return) -> None:
    settings = deps.settings(record.agent_id)
    audience = sessions.heard_in(tx, record.child_session_key or record.owner)
    resolved = recipients(tx, record.owner, record.election, settings, child=record.child_session_key)
    found = readable_recipients(tx, resolved, audience)
    if found.withheld is not None:
        key = f"continuation-withheld:{record.id}"
        notices.warn(tx, record.owner, key, f"Not everyone named got a delegate's return: {found.withheld}.")
    mode = {"delegate.mode": record.election.mode, "delegate.status": back.status}
    queued = _queued(record, settings)
    with traces.span("continuation.queue.announce", mode, parent=queued) as told:
        many = {"queue.recipients": len(found.keys)}
        with traces.span("continuation.queue.fanout", many, parent=told) as fan:
            for index, key in enumerate(found.keys):
                _deliver(tx, deps, record, _Told(back, audience), index, key, fan)


def _queued(record: Record, settings: Continuation) -> str | None:
    """The return in the queue, under the dispatch; no span of its own when the chain has no step left."""
    if settings.max_chain_length <= record.hop:
        return record.traceparent
    return traces.mark("continuation.queue.enqueue", {"signal.kind": "return"}, parent=record.traceparent)


@dataclass(frozen=True, slots=True)
class _Told:
    """What a delegate brought back, and who may read it."""

    back: Return
    audience: Audience


def _deliver(
    tx: Tx, deps: Dependencies, record: Record, told: _Told, index: int, key: str, fan: str | None
) -> None:
    """One recipient's notes, the runtime's account and the delegate's words apart, and a turn for them."""
    facts = {"recipient.index": index, "recipient.self": key == record.owner}
    own = traces.mark("continuation.queue.deliver", facts, parent=fan, links=[fan])
    base = f"continuation-return:{record.id}:{index}:{key}"
    account, words = return_account(record, told.back), return_text(record, told.back)
    notices.tell(tx, key, notices.ACCOUNT, f"{base}:account", account, audience=told.audience)
    notices.tell(tx, key, notices.RETURN, base, words, trust=Trust.OTHER_SESSION, audience=told.audience)
    if record.election.mode != "silent":
        _wake(tx, deps, record, key, own)


def _wake(tx: Tx, deps: Dependencies, record: Record, key: str, traceparent: str | None) -> None:
    """A turn for the return, unless one waits that will be shown it; a full queue leaves the note alone."""
    session = sessions.active(tx, key)
    if session is None or (record.election.mode != "normal" and wakes.waiting_wake(tx, session)):
        return
    try:
        wakes.wake(tx, deps, record, notices.delegate_wake(record), session, traceparent=traceparent)
    except (Busy, ChainStopped) as error:
        log.info("no turn for the return of %s: %s", record.id, error.message)


def release(tx: Tx, session: Session, found: list[Record], settings: Continuation) -> tuple[int, int]:
    """After a compaction: what was staged for it goes on its way; how many did, and how many stay."""
    staged = [r for r in found if r.phase is Phase.STAGED]
    old = [r for r in staged if tx.now - r.created_at > STAGED_TTL_MS]
    for record in old:
        notices.settle(tx, records.apply(tx, record, Lapse("it was staged for too long")))
    fresh = [r for r in staged if r not in old]
    going, kept = fresh[: settings.max_delegates_per_turn], fresh[settings.max_delegates_per_turn :]
    for record in going:
        refused = target_refusal(record.owner, record.election.targets, record.election.fanout, settings)
        event = Release() if refused is None else Lapse(refused)
        notices.settle(tx, records.apply(tx, record, event))
    if going:
        facts = {"queue.drained_count": len(going), "queue.kept_count": len(kept)}
        traces.mark("continuation.compaction.released", facts, parent=going[0].traceparent)
    return len(going), len(kept)


def pending(found: list[Record]) -> tuple[int, int]:
    """Delegates under way or waiting, and those staged for a compaction."""
    mine = [r for r in found if r.kind is not Kind.WORK]
    staged = sum(r.phase is Phase.STAGED for r in mine)
    return len(mine) - staged, staged
