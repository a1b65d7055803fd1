"""What a compaction would summarise and what it would keep, decided without effects; and the doing."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from holdfast.config import Compaction
from holdfast.context import states
from holdfast.context.engine import CompactOutcome, CompactParams, CompactResult
from holdfast.context.history import History
from holdfast.context.messages import AssistantMessage, Message, ToolResult, UserMessage
from holdfast.context.states import State
from holdfast.context.summaries import MOST_PARTS, Summariser, Summary, extract, part_tokens, summarise
from holdfast.context.tokens import message_tokens, raw_tokens
from holdfast.errors import Conflict
from holdfast.log import (
    SYSTEM,
    Classification,
    EntryDraft,
    EntryType,
    Store,
    Threads,
    Tx,
    changes,
    entries,
    sessions,
    turns,
)

_ROOMY: Final = 2


def boundaries(messages: Sequence[Message]) -> list[int]:
    """Where history may be cut: nowhere between a tool call and its result."""
    barred = [False] * (len(messages) + 1)
    waiting: dict[str, int] = {}
    for index, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            waiting |= {call.id: index for call in message.calls}
        elif isinstance(message, ToolResult):
            start = waiting.pop(message.call_id, index - 1)
            barred[start + 1 : index + 1] = [True] * (index - start)
    return [index for index, bar in enumerate(barred) if not bar]


def first_kept(
    messages: Sequence[Message],
    tokens: Callable[[Message], int],
    *,
    keep_recent: int,
    keep_turns: int = 0,
    force: bool = False,
) -> int:
    """The index of the first message to keep; 0 if there is nothing to summarise.

    At least `keep_recent` tokens stay, and always the newest user turn; the last `keep_turns` turns and
    whole turns stay too where that does not double what is kept. `force` halves what there is if need be.
    """
    behind = _suffix_sums([tokens(m) for m in messages])
    if force:
        keep_recent = min(keep_recent, behind[0] // 2)
    users = [i for i, m in enumerate(messages) if isinstance(m, UserMessage)]
    latest = users[-1] if users else len(messages) - 1
    fitting = [i for i in boundaries(messages) if i <= latest and behind[i] >= keep_recent]
    if not fitting:
        return 0
    cut = fitting[-1]
    wider = [i for i in users if i <= cut and behind[i] <= keep_recent * _ROOMY]
    if keep_turns and len(users) >= keep_turns:
        whole = [i for i in wider if i <= users[-keep_turns]]
        return whole[-1] if whole else (wider[-1] if wider else cut)
    return wider[-1] if wider else cut


def fit(
    messages: Sequence[Message],
    tokens: Callable[[Message], int],
    *,
    budget: int,
    keep_newest: bool = True,
) -> int:
    """The index from which messages fit a budget when they do not all: cut once and by a good piece.

    Leaves a quarter of the budget free, so that the next turns can append without moving the cut again.
    The newest user message stays, whatever it costs, unless the turn's own words stand elsewhere
    (`keep_newest=False`).
    """
    behind = _suffix_sums([tokens(m) for m in messages])
    if behind[0] <= budget:
        return 0
    users = [i for i, m in enumerate(messages) if isinstance(m, UserMessage)]
    latest = users[-1] if users and keep_newest else len(messages)
    allowed = [i for i in boundaries(messages) if i <= latest]
    roomy = [i for i in allowed if behind[i] <= budget * 3 // 4]
    if roomy:
        starts = [i for i in roomy if i in set(users)]
        return starts[0] if starts else roomy[0]
    return allowed[-1] if allowed else 0


def _suffix_sums(values: Sequence[int]) -> list[int]:
    sums = [0] * (len(values) + 1)
    for index in range(len(values) - 1, -1, -1):
        sums[index] = sums[index + 1] + values[index]
    return sums


# After so many failures in a row the extract is taken, so that a broken model is not asked every turn.
PATIENCE: Final = 2


@dataclass(frozen=True, slots=True)
class Job:
    """What one compaction is about, as it was read."""

    state: State
    source: tuple[Message, ...]
    previous: str | None
    first_kept_id: str | None
    floor: int
    tokens_before: int


class Compactor:
    """The built-in compaction; `legacy` and every engine that delegates use it."""

    def __init__(
        self,
        store: Store,
        threads: Threads,
        history: History,
        settings: Callable[[str], Compaction],
        summariser: Summariser | None = None,
        engine_id: Callable[[], str] = lambda: "legacy",
    ) -> None:
        self._store = store
        self._threads = threads
        self._history = history
        self._settings = settings
        self.summariser = summariser
        self._engine_id = engine_id
        self._failures: dict[str, int] = {}

    async def compact(self, params: CompactParams) -> CompactResult:
        settings = self._settings(params.session_key)
        job = await self._threads(self._read, params, settings)
        if job is None:
            return CompactResult(
                outcome=CompactOutcome.NOTHING_TO_DO,
                reason="no history older than what is kept",
                tokens_before=params.current_tokens or 0,
                tokens_after=params.current_tokens or 0,
            )
        summary = await summarise(
            self.summariser,
            job.source,
            job.previous,
            settings,
            extra=params.instructions,
            session_id=params.session_id,
            budget=params.token_budget,
        )
        if summary.fault is not None and self._must_extract(params, settings):
            made = extract(job.source, job.previous, target_tokens=min(1200, params.token_budget // 8))
            summary = replace(made, fault=summary.fault)
        if not summary.text:
            return await self._threads(self._failed, params, job, summary)
        return await self._threads(self._commit, params, job, summary)

    async def rotate(self, session_id: str) -> str:
        """End a session's transcript and begin its successor, which turns that have not ended go on in."""

        def write(tx: Tx) -> str:
            left = sessions.get(tx, session_id)
            successor = sessions.reset(tx, left, cause="compaction")
            turns.hand_on(tx, left, successor)
            return successor.id

        return await self._threads(self._store.run, SYSTEM, write)

    def _must_extract(self, params: CompactParams, settings: Compaction) -> bool:
        """With an overflow room must be made; otherwise history is kept and the model tried again later."""
        if settings.mode == "default" or params.force or params.reason != "threshold":
            return True
        return self.summariser is None or self._failures.get(params.session_id, 0) >= PATIENCE

    def _read(self, params: CompactParams, settings: Compaction) -> Job | None:
        with self._store.read(SYSTEM) as tx:
            session = sessions.get(tx, params.session_id)
            state = states.of(tx, session, self._engine_id())
            whole = replace(state, cut=0)
            shown = states.forms_of(tx, session.id, since=state.floor)
            tail = self._history.newest(tx, whole, shown, budget=max(params.token_budget, 1))
            cut = first_kept(
                tail,
                message_tokens,
                keep_recent=min(settings.keep_recent_tokens, params.token_budget // 4),
                keep_turns=settings.recent_turns_preserve,
                force=params.force or params.reason == "overflow",
            )
            first = self._history.oldest(tx, whole, shown, budget=0)
            if cut == 0 and first and tail and _position(first[0]) < _position(tail[0]):
                cut = boundaries(tail)[0]
            elif cut == 0:
                return None
            end = min(map(_position, tail[cut:]))
            most = part_tokens(params.token_budget) * (MOST_PARTS - 1)
            found = self._history.oldest(tx, whole, shown, budget=most)
            source, floor = _until(found, end)
            if not source:
                return None
            previous = None if state.summary_id is None else entries.get(tx, state.summary_id).content
            kept = next(
                (m.mark.entry_id for m in [*found, *tail] if m.mark and m.mark.position >= floor), None
            )
            known = sum(map(message_tokens, tail)) + raw_tokens(previous or "")
            return Job(state, tuple(source), previous, kept, floor, params.current_tokens or known)

    def _commit(self, params: CompactParams, job: Job, summary: Summary) -> CompactResult:
        """The summary's entry, the projection behind it and the session's count, in one transaction."""
        saved = sum(map(message_tokens, job.source)) + raw_tokens(job.previous or "")
        cost = raw_tokens(summary.text)
        result = CompactResult(
            outcome=CompactOutcome.COMPACTED if cost < saved else CompactOutcome.NO_PROGRESS,
            reason=summary.fault or params.reason,
            tokens_before=job.tokens_before,
            tokens_after=max(0, job.tokens_before - saved + cost) if cost < saved else job.tokens_before,
            first_kept_id=job.first_kept_id,
            extractive=summary.extractive,
        )
        if not result.compacted:
            return replace(result, reason="the summary is no shorter than what it would replace")
        try:
            with self._store.write(SYSTEM) as tx:
                entry_id = self._write(tx, params, job, summary, result)
        except Conflict:
            return CompactResult(
                outcome=CompactOutcome.NO_PROGRESS,
                reason="the session changed meanwhile; nothing was done",
                tokens_before=job.tokens_before,
                tokens_after=job.tokens_before,
            )
        self._failures.pop(params.session_id, None)
        return replace(result, summary_id=entry_id)

    def _write(self, tx: Tx, params: CompactParams, job: Job, summary: Summary, result: CompactResult) -> str:
        session = sessions.get(tx, params.session_id)
        raw = {
            "type": "compaction",
            "summary": summary.text,
            "firstKeptEntryId": job.first_kept_id,
            "tokensBefore": job.tokens_before,
            "details": {
                "from": job.state.floor,
                "until": job.floor,
                "messages": len(job.source),
                "extractive": summary.extractive,
                "previousId": job.state.summary_id,
            },
        }
        draft = EntryDraft(
            content=summary.text,
            audience=session.audience,
            type=EntryType.SYSTEM,
            role="system",
            session_key=session.key,
            session_id=session.id,
            agent_id=session.agent_id,
            raw=json.dumps(raw, ensure_ascii=False, separators=(",", ":")),
            status=Classification.CLASSIFIED,
            code="filtered_non_semantic",
            idempotency_key=f"compaction:{session.id}:{job.state.revision}:{job.floor}",
        )
        written = entries.append(tx, draft).entry
        states.save(tx, job.state, floor=job.floor, cut=0, summary_id=written.id)
        states.forget_forms(tx, session.id, before=job.floor)
        sessions.update(tx, session, compaction_count=session.compaction_count + 1)
        payload = {
            "sessionKey": session.key,
            "agentId": session.agent_id,
            "outcome": result.outcome,
            "extractive": summary.extractive,
            "tokensBefore": result.tokens_before,
            "tokensAfter": result.tokens_after,
            "summaryId": written.id,
        }
        changes.emit(tx, "context.compacted", session.id, payload)
        return written.id

    def _failed(self, params: CompactParams, job: Job, summary: Summary) -> CompactResult:
        """Nothing was changed; that it failed is an event of its own."""
        self._failures[params.session_id] = self._failures.get(params.session_id, 0) + 1
        reason = f"the summary could not be had ({summary.fault}); history is kept as it was"
        with self._store.write(SYSTEM) as tx:
            session = sessions.get(tx, params.session_id)
            payload = {"sessionKey": session.key, "agentId": session.agent_id, "fault": summary.fault}
            changes.emit(tx, "context.compaction_failed", session.id, payload)
        return CompactResult(
            outcome=CompactOutcome.FAILED,
            reason=reason,
            tokens_before=job.tokens_before,
            tokens_after=job.tokens_before,
        )


def _position(message: Message) -> int:
    return 0 if message.mark is None else message.mark.position


def _until(found: list[Message], end: int) -> tuple[list[Message], int]:
    """The source before `end`, or a shorter one that ends at a boundary, and the position behind it."""
    source = [m for m in found if _position(m) < end]
    if len(source) < len(found):
        return source, end
    whole = [i for i in boundaries(source) if 0 < i < len(source)]
    if not whole:
        return source, end
    return source[: whole[-1]], _position(source[whole[-1]])
