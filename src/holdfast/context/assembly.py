"""Building a context: read what there is, let the engine choose, lay it out, account for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from holdfast.clock import Millis
from holdfast.context import blobs, calibration, manifest, pruning, states
from holdfast.context.account import framed, section, sections_of, too_large
from holdfast.context.budget import Pressure, how_full, needs_compaction
from holdfast.context.compaction import fit
from holdfast.context.engine import AssembleParams, AssembleResult, EngineInfo
from holdfast.context.fence import safe
from holdfast.context.history import MOST_MESSAGES, History, Past, message_by_ref, not_before
from holdfast.context.inputs import (
    CLOSES,
    OPENS,
    Inputs,
    Opening,
    RecordingReader,
    Stable,
    carrier,
    opening_of,
    record,
    stable_parts,
)
from holdfast.context.manifest import JOINT, Manifest, Section
from holdfast.context.messages import (
    CarrierMessage,
    Message,
    SummaryMessage,
    SystemMessage,
    Trust,
    context_digest,
    text_digest,
)
from holdfast.context.request import BuildRequest, Built, Text, ordered_tools, tools_text
from holdfast.context.states import State
from holdfast.context.tokens import PER_MESSAGE, Estimator
from holdfast.context.transcript import message_of, whole_pairs
from holdfast.context.workspace import FileReader, Occasion, Workspace
from holdfast.context.workspace.files import FileText
from holdfast.errors import Conflict, TooLarge
from holdfast.log import SYSTEM, Session, Store, Tx, entries
from holdfast.text import clean_text

_CARRIER_ALLOWANCE = 96
_ESTIMATE_SLACK = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """All that was read for a build, in one look at the store."""

    state: State
    estimator: Estimator
    stable: Stable
    tools: str | None
    summary: SummaryMessage | None
    history: tuple[Message, ...] = field(repr=False)
    forms: Mapping[str, tuple[int, str]]
    shown: Mapping[str, str]
    cut: int
    input: Message | None
    pending: tuple[Message, ...]
    skip: frozenset[str]
    budget: int
    carrier_tokens: int
    opening: Opening | None
    files: Mapping[str, FileText]
    head: int
    now: Millis
    past: Past | None
    engine_state: Any


@dataclass(frozen=True, slots=True)
class Reading:
    """What decides how much of the history is read, and in which forms: `shown` are those recorded so far."""

    state: State
    estimator: Estimator
    budget: int
    fixed: int
    skip: frozenset[str]
    shown: Mapping[str, str]
    now: Millis
    past: Past | None


class Assembly:
    """The synchronous halves of a build, before and after the engine's own say."""

    def __init__(self, store: Store, history: History, reader: FileReader) -> None:
        self._store = store
        self._history = history
        self._reader = reader
        self._blobs = blobs.Blobs()

    def prepare(self, request: BuildRequest, info: EngineInfo, inputs: Inputs | None = None) -> Prepared:
        """Read all that there is; with `inputs`, all that there was when an old context was built."""
        with self._store.read(request.session.reader) as tx:
            past = None if inputs is None else inputs.past
            state = states.of(tx, request.session, info.id) if inputs is None else inputs.state
            calibrated = calibration.get(tx, request.model.name).estimator
            estimator = calibrated if inputs is None else Estimator(inputs.factor)
            opens = request.call > 0 if inputs is None else inputs.opened
            opening = opening_of(tx, request.turn_id) if opens else None
            files = RecordingReader(self._reader) if inputs is None else inputs.files
            now = tx.now if past is None else past.at
            stable = opening.stable if opening else self._stable(tx, request, state, files, now)
            tools = tools_text(request.tools, request.loaded_tools)
            said = _input(tx, request, past)
            pending = tuple(_safe(m) for m in request.pending)
            wants = info.wants_messages
            summary = self._history.summary(tx, state) if wants else None
            moving = _carrier_tokens(estimator, stable, request, opening)
            fixed = moving + _fixed(estimator, stable, tools, [summary, said, *pending])
            budget = max(0, request.budgets.prompt - fixed)
            skip = _not_yet(tx, request)
            shown = self._forms(tx, request, state, inputs) if wants else {}
            read = Reading(state, estimator, budget, fixed, skip, shown, now, past)
            found, forms, cut = self._read(tx, request, read) if wants else ((), {}, state.cut)
            return Prepared(
                state=state,
                estimator=estimator,
                stable=stable,
                tools=tools,
                summary=summary,
                history=found,
                forms=forms,
                shown=shown,
                cut=cut,
                input=said,
                pending=pending,
                skip=skip,
                budget=budget,
                carrier_tokens=moving,
                opening=opening,
                files=files.seen if isinstance(files, RecordingReader) else {},
                head=entries.head(tx) if past is None else past.until,
                now=now,
                past=past,
                engine_state=None if inputs is None else inputs.engine_state,
            )

    def _stable(self, tx: Tx, request: BuildRequest, state: State, files: FileReader, now: Millis) -> Stable:
        pinned = None if state.daily is None else _pinned(tx, state.daily)
        return stable_parts(request, state, Workspace(request.workspace, files), pinned, now)

    def _forms(self, tx: Tx, request: BuildRequest, state: State, inputs: Inputs | None) -> Mapping[str, str]:
        if inputs is not None:
            return inputs.forms
        return states.forms_of(tx, request.session.id, since=state.shown_from)

    def project(
        self, session: Session, info: EngineInfo, *, budget: int, model: str
    ) -> tuple[tuple[Message, ...], Estimator]:
        """The history of a session for a host that lays out its own prompts; a cut is kept like any other."""
        with self._store.read(SYSTEM) as tx:
            state = states.of(tx, session, info.id)
            estimator = calibration.get(tx, model).estimator
            summary = self._history.summary(tx, state) if info.wants_messages else None
            first = () if summary is None else (summary,)
            room = max(0, budget - estimator.messages(first))
            shown = states.forms_of(tx, session.id, since=state.shown_from)
            most = int(room / estimator.factor)
            found = self._history.newest(tx, state, shown, budget=most) if info.wants_messages else []
        start = fit(found, estimator.message, budget=room)
        whole = start == 0 and sum(m.mark.tokens for m in found if m.mark) <= most
        cut = state.cut if whole else _cut_before(found, start)
        if cut != state.cut or state.called_at is None:
            # Two calls at once for one session: either's cut will do.
            with suppress(Conflict), self._store.write(SYSTEM, ordered=False, durable=False) as tx:
                states.save(tx, state, cut=cut, called_at=tx.now)
        return (*first, *found[start:]), estimator

    def params(self, request: BuildRequest, prepared: Prepared) -> AssembleParams:
        first = [] if prepared.summary is None else [prepared.summary]
        return AssembleParams(
            session_id=request.session.id,
            session_key=request.session.key,
            messages=(*first, *prepared.history),
            token_budget=prepared.budget,
            estimate=prepared.estimator.message,
            available_tools=frozenset(tool.name for tool in (*request.tools, *request.loaded_tools)),
            citations_mode=request.citations_mode,
            model=request.model.name,
            prompt=None if prepared.input is None else prepared.input.text,
            skip=prepared.skip,
            is_heartbeat=request.occasion in (Occasion.HEARTBEAT, Occasion.HEARTBEAT_LIGHT),
            state=prepared.engine_state,
            past=prepared.past,
        )

    def finish(
        self, request: BuildRequest, prepared: Prepared, result: AssembleResult, info: EngineInfo
    ) -> Built:
        """Lay out, check the size, and store the account of it together with what was decided. A context that
        does not fit is not sent, but its account is stored all the same: there it can be seen why."""
        built, texts = self.laid_out(request, prepared, result, info)
        refusal = too_large(built.manifest, least_answer=request.budgets.answer)
        if request.record:
            inputs = partial(_inputs, request, prepared, result)
            with self._store.write(SYSTEM, ordered=False, durable=False) as tx:
                if refusal is not None:
                    account = replace(built.manifest, refused=refusal.message)
                    self._save(tx, account, built, prepared, texts, inputs)
                else:
                    built = self._record(tx, request, prepared, built, texts, inputs)
        if refusal is not None:
            raise refusal
        return replace(built, notes=dict(result.notes))

    def laid_out(
        self, request: BuildRequest, prepared: Prepared, result: AssembleResult, info: EngineInfo
    ) -> tuple[Built, list[str]]:
        """What an engine gave as a whole context, and the texts of its system message; nothing is written."""
        system = [part for part in prepared.stable.system if part.text]
        addition = _addition(request, prepared, result, info)
        if addition is not None:
            system.insert(0, addition)
        room = prepared.budget - (0 if addition is None else prepared.estimator.text(addition.text))
        chosen = [_safe(m) for m in result.messages]
        chosen = [m for m in chosen if m.mark is None or m.mark.entry_id not in prepared.skip]
        counted = prepared.estimator.messages(chosen) + prepared.budget - room
        chosen = within_budget(chosen, prepared.estimator, room, keep_newest=prepared.input is None)
        built = self._laid_out(request, prepared, chosen, system, info)
        built = _with_estimate(built, request, info, result.estimated_tokens, counted)
        return built, [part.text for part in system]

    def _read(
        self, tx: Tx, request: BuildRequest, read: Reading
    ) -> tuple[tuple[Message, ...], Mapping[str, tuple[int, str]], int]:
        """History that fits: pruned if the cache is cold, cut if it is still too long."""
        most = int(read.budget / read.estimator.factor * 1.25)
        found = self._history.newest(tx, read.state, read.shown, budget=most, skip=read.skip, past=read.past)
        truncated = sum(m.mark.tokens for m in found if m.mark) > most or len(found) >= MOST_MESSAGES
        found, new = self._pruned(tx, request, read, found)
        answering = bool(request.input_id or request.input)
        start = fit(found, read.estimator.message, budget=read.budget, keep_newest=not answering)
        cut = _cut_before(found, start) if start or truncated else read.state.cut
        return tuple(found[start:]), new, cut

    def _pruned(
        self, tx: Tx, request: BuildRequest, read: Reading, found: list[Message]
    ) -> tuple[list[Message], Mapping[str, tuple[int, str]]]:
        settings = request.settings.context_pruning
        if not pruning.is_cold(settings, now=read.now, called_at=read.state.called_at):
            return found, {}
        used = read.fixed + read.estimator.messages(found)
        forms = pruning.plan(found, settings, used=used, window=request.model.window)
        if not forms:
            return found, {}
        sources = {str(e.id): e for e in entries.get_many(tx, list(forms))}
        shorter = {id_: message_of(sources[id_], form) for id_, form in forms.items()}
        new = {id_: (sources[id_].position, form) for id_, form in forms.items()}
        shown = [(m.mark and shorter.get(m.mark.entry_id)) or m for m in found]
        return shown, new

    def _laid_out(
        self,
        request: BuildRequest,
        prepared: Prepared,
        chosen: Sequence[Message],
        system: Sequence[Text],
        info: EngineInfo,
    ) -> Built:
        window = request.model.window
        estimate = prepared.estimator
        first = SystemMessage(text=JOINT.join(part.text for part in system))
        ending = _ending(prepared)
        body = whole_pairs([*chosen, *ending])
        head, tail = _split(body, ending)
        used = estimate.messages([first, *body]) + estimate.text(prepared.tools or "")
        used += prepared.carrier_tokens
        pressure = how_full(request.settings.compaction, window, estimate=used)
        moving, parts = _moving(request, prepared, pressure)
        messages = (first, *head, moving, *tail)
        sections = sections_of(
            estimate,
            tools=prepared.tools,
            tool_count=len(request.tools) + len(request.loaded_tools),
            system=system,
            head=head,
            carrier=parts,
            tail=tail,
            has_input=prepared.input is not None,
            leads=sum(m.mark is not None and m.mark.leads for m in prepared.pending),
            heard=request.session.audience,
        )
        manifest.check(request.session, sections)
        full = needs_compaction(request.settings.compaction, used=used, window=window)
        return Built(
            messages=messages,
            tools=ordered_tools(request.tools, request.loaded_tools),
            manifest=_manifest(request, prepared, info, messages, sections),
            pressure=pressure,
            needs_compaction=not info.owns_compaction and (full or prepared.cut > prepared.state.cut),
        )

    def _record(
        self,
        tx: Tx,
        request: BuildRequest,
        prepared: Prepared,
        built: Built,
        system: Sequence[str],
        inputs: Callable[[dict[str, str]], dict[str, Any]],
    ) -> Built:
        changes: dict[str, Any] = {"cut": prepared.cut, "called_at": prepared.now}
        if prepared.opening is None and request.occasion is not Occasion.BOOT:
            daily = prepared.stable.daily
            self._blobs.put(tx, {text_digest(text): text for text in daily.values()})
            changes["daily"] = {name: text_digest(text) for name, text in daily.items()}
        state = states.save(tx, prepared.state, **changes)
        state = states.record_forms(tx, state, prepared.forms)
        account = replace(built.manifest, revision=state.revision)
        self._save(tx, account, built, prepared, system, inputs)
        return replace(built, manifest=account)

    def _save(
        self,
        tx: Tx,
        account: Manifest,
        built: Built,
        prepared: Prepared,
        system: Sequence[str],
        inputs: Callable[[dict[str, str]], dict[str, Any]],
    ) -> None:
        tools = prepared.tools
        manifest.save(tx, self._blobs, account, built.messages, tools=tools, system=system, inputs=inputs)


def _inputs(
    request: BuildRequest, prepared: Prepared, result: AssembleResult, contents: dict[str, str]
) -> dict[str, Any]:
    return record(
        request,
        contents,
        state=prepared.state,
        head=prepared.head,
        factor=prepared.estimator.factor,
        forms=prepared.shown,
        files=prepared.files,
        engine_state=result.state,
        opened=prepared.opening is not None,
    )


def _pinned(tx: Tx, daily: Mapping[str, str]) -> dict[str, str]:
    contents = blobs.get_many(tx, list(daily.values()))
    return {name: contents[hash_] for name, hash_ in daily.items()}


def _input(tx: Tx, request: BuildRequest, past: Past | None) -> Message | None:
    if request.input_id is None:
        return None if request.input is None else _safe(request.input)
    entry = entries.get(tx, request.input_id)
    if past is None or entry.id not in past.revisions:
        return message_of(entry)
    return message_by_ref(tx, f"{entry.id}@{past.revisions[entry.id]}/", {str(entry.id): entry})


def _not_yet(tx: Tx, request: BuildRequest) -> frozenset[str]:
    """What stands at the end or not at all: this turn's own entries, and what later turns wait to answer."""
    found = not_before(tx, request.session.id, request.number, request.turn_id)
    return found if request.input_id is None else found | {request.input_id}


def within_budget(
    chosen: Sequence[Message], estimate: Estimator, budget: int, *, keep_newest: bool = True
) -> list[Message]:
    """What an engine chose, within the budget that it was given: summaries stay, the oldest words go."""
    if estimate.messages(chosen) <= budget:
        return list(chosen)
    summaries = [m for m in chosen if isinstance(m, SummaryMessage)]
    spoken = [m for m in chosen if not isinstance(m, SummaryMessage)]
    room = max(0, budget - estimate.messages(summaries))
    start = fit(spoken, estimate.message, budget=room, keep_newest=keep_newest)
    return [*summaries, *spoken[start:]]


def addition_too_large(engine: str, tokens: int, budget: int) -> TooLarge:
    return TooLarge(
        f"context engine {engine!r} adds {tokens:,} tokens to the system prompt, and has {budget:,} for all "
        "that it gives",
        code="engine_overflow",
        hint="Its system_prompt_addition counts towards token_budget: shorten it, or use another engine.",
    )


def _addition(
    request: BuildRequest, prepared: Prepared, result: AssembleResult, info: EngineInfo
) -> Text | None:
    """What an engine puts before the system prompt, once a turn; it has room in the engine's own budget."""
    if not result.system_prompt_addition or prepared.opening is not None:
        return None
    text = clean_text(result.system_prompt_addition)
    tokens = prepared.estimator.text(text)
    if tokens > prepared.budget:
        raise addition_too_large(info.id, tokens, prepared.budget)
    return Text("engine", text, Trust.OPERATOR, f"engine/{info.id}", request.session.audience)


def _with_estimate(built: Built, request: BuildRequest, info: EngineInfo, said: int, counted: int) -> Built:
    """An engine's own count decides with ours when to compact; one that is far off is told of instead."""
    more = said - counted
    if abs(more) <= max(_ESTIMATE_SLACK, counted // 2):
        used = built.manifest.used + max(0, more)
        full = needs_compaction(request.settings.compaction, used=used, window=request.model.window)
        return replace(built, needs_compaction=built.needs_compaction or (full and not info.owns_compaction))
    words = f"engine {info.id} says {said:,} tokens of what was counted as {counted:,}: its count is not used"
    account = replace(built.manifest, warnings=(*built.manifest.warnings, words))
    return replace(built, manifest=account)


def _cut_before(found: Sequence[Message], start: int) -> int:
    """The position from which on all is shown that is kept from `start`."""
    places = [m.mark.position for m in found if m.mark]
    return min((m.mark.position for m in found[start:] if m.mark), default=max(places, default=-1) + 1)


def _safe(message: Message) -> Message:
    """A message that did not come from the log is made safe here; one that did is so already."""
    if message.mark is not None or message.kind in ("system", "summary", "carrier"):
        return message
    text = safe(message.text, message.trust, message.source)
    return message if text == message.text else replace(message, text=text)


def _fixed(
    estimator: Estimator, stable: Stable, tools: str | None, messages: Sequence[Message | None]
) -> int:
    """Tokens that are spent before any history, the carrier aside."""
    count = sum(estimator.text(part.text) for part in stable.system) + estimator.text(tools or "")
    return count + estimator.messages(m for m in messages if m is not None) + 2 * PER_MESSAGE


def _carrier_tokens(
    estimator: Estimator, stable: Stable, request: BuildRequest, opening: Opening | None
) -> int:
    """What the carrier costs, before it is written: it tells of the pressure that it is a part of."""
    if opening is not None:
        return estimator.message(opening.carrier)
    texts = (*stable.occasional, *request.volatile)
    return sum(estimator.text(part.text) for part in texts) + _CARRIER_ALLOWANCE


def _moving(
    request: BuildRequest, prepared: Prepared, pressure: Pressure
) -> tuple[CarrierMessage, tuple[Section, ...]]:
    """The carrier and its sections: new for the first call of a turn, and then as it was."""
    if prepared.opening is not None:
        return prepared.opening.carrier, prepared.opening.sections
    left_out = prepared.cut > prepared.state.floor
    message, parts = carrier(request, prepared.stable, pressure, prepared.now, left_out)
    found = [section(part, "carrier", prepared.estimator) for part in parts if part.text]
    return message, tuple(framed(found, joint=len(JOINT), before=len(OPENS), after=len(CLOSES)))


def _ending(prepared: Prepared) -> list[Message]:
    """This turn's own: what was said around the chat before, the words that it answers, what it did since."""
    said = [] if prepared.input is None else [prepared.input]
    first = [m for m in prepared.pending if m.mark is not None and m.mark.leads]
    return [*first, *said, *(m for m in prepared.pending if m.mark is None or not m.mark.leads)]


def _split(body: Sequence[Message], ending: Sequence[Message]) -> tuple[list[Message], list[Message]]:
    """Where the carrier goes: right before what this turn began with."""
    if not ending:
        return list(body), []
    start = next((i for i in range(len(body) - 1, -1, -1) if body[i] is ending[0]), len(body))
    return list(body[:start]), list(body[start:])


def _manifest(
    request: BuildRequest,
    prepared: Prepared,
    info: EngineInfo,
    messages: Sequence[Message],
    sections: tuple[Section, ...],
) -> Manifest:
    used = sum(section.tokens for section in sections)
    return Manifest(
        turn_id=request.turn_id,
        call=request.call,
        session_id=request.session.id,
        session_key=request.session.key,
        number=request.number,
        engine=info.id,
        model=request.model.name,
        window=request.model.window,
        budget=request.budgets.prompt,
        used=used,
        raw_tokens=round(used / prepared.estimator.factor),
        revision=prepared.state.revision,
        digest=context_digest(messages, prepared.tools),
        sections=sections,
        warnings=prepared.stable.warnings,
        sent_as=request.model.sent_as,
        created_at=prepared.now,
    )
