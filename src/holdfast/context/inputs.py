"""What a build is made of, in an order that providers can cache: what is stable first, what changes last.

tools · instructions · workspace files · daily notes · summary · history
    ── carrier · the user's words · this turn

Nothing before the carrier depends on the clock, the pressure or the question.

What a build was given is recorded: settings, calibration, the texts of the workspace, and where the log
ended. With it the same engine builds the same context again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from holdfast.clock import Millis
from holdfast.config import AgentSettings
from holdfast.config.memory import DailyLogs
from holdfast.context import blobs, manifest
from holdfast.context.budget import Pressure, chars
from holdfast.context.fence import fence
from holdfast.context.history import Past
from holdfast.context.manifest import Section
from holdfast.context.messages import CarrierMessage, Message, Trust, decode, text_digest
from holdfast.context.request import BuildRequest, ModelFacts, Remembered, Text, ToolSpec
from holdfast.context.states import State
from holdfast.context.workspace import (
    FOR_ALL,
    OCCASIONAL,
    OPENABLE,
    FileReader,
    Fitted,
    Occasion,
    SessionKind,
    Workspace,
    kind_of,
    local_time,
    names_for,
    trust_of,
)
from holdfast.context.workspace.files import FileText
from holdfast.errors import NotFound
from holdfast.log import FOR_ANYONE, FOR_OWNER, Session, Tx
from holdfast.text import clean_text

OPENS: Final = "<holdfast:now>\n"
CLOSES: Final = "\n</holdfast:now>"


@dataclass(frozen=True, slots=True)
class Stable:
    """The parts of the system message, those for the carrier, and what there is to warn of."""

    system: tuple[Text, ...]
    occasional: tuple[Text, ...]
    daily: Mapping[str, str]
    warnings: tuple[str, ...]


def stable_parts(
    request: BuildRequest, state: State, workspace: Workspace, pinned: Mapping[str, str] | None, now: Millis
) -> Stable:
    """Instructions, workspace files and the daily notes as they were when the session began."""
    kind = kind_of(request.session.key, request.session.audience)
    files, limited = _files(request, state, workspace, kind)
    daily = pinned if pinned is not None else _daily(request, workspace, kind, now)
    system = [_instruction(text) for text in request.instructions]
    system += [_file_text(f, request) for f in files if f.text and f.name not in OCCASIONAL]
    shown = {} if request.occasion is Occasion.HEARTBEAT_LIGHT else daily
    system += [
        Text(name, _noted(name, text), Trust.MODEL, f"workspace/{name}") for name, text in shown.items()
    ]
    occasional = tuple(_file_text(f, request) for f in files if f.text and f.name in OCCASIONAL)
    warnings = [f.warning for f in files if f.warning is not None]
    return Stable(tuple(system), occasional, daily, (*warnings, *limited))


def carrier(
    request: BuildRequest, stable: Stable, pressure: Pressure, now: Millis, left_out: bool
) -> tuple[CarrierMessage, tuple[Text, ...]]:
    """The one message that changes every turn, and the parts it is made of."""
    when = local_time(now, request.settings.user_timezone)
    facts = [f"Now: {when:%A %Y-%m-%d %H:%M} ({when.tzname()})", f"Context: {pressure}"]
    if left_out:
        facts.append("Earlier messages are left out here until they are summarised; the log has them.")
    parts = (
        *stable.occasional,
        Text("now", "\n".join(facts), audience=FOR_ANYONE),
        *map(_volatile, request.volatile),
    )
    body = "\n\n".join(part.text for part in parts if part.text)
    return CarrierMessage(text=f"{OPENS}{body}{CLOSES}"), parts


def _files(
    request: BuildRequest, state: State, workspace: Workspace, kind: SessionKind
) -> tuple[list[Fitted], list[str]]:
    """The share of a small window goes to files, whatever the config says; of it half to any one of them."""
    total = request.settings.bootstrap_total_max_chars
    most = chars(request.budgets.files)
    names = names_for(
        kind,
        request.occasion,
        first_session=state.first_session,
        subagent_files=request.subagent_files,
    )
    alone = request.session.audience == FOR_OWNER
    if not alone:
        names = tuple(name for name in names if name in (*FOR_ALL, *request.opened_files))
    files = workspace.files(
        names,
        per_file=min(request.settings.bootstrap_max_chars, most // 2),
        total=min(total, most),
        extra=request.extra_files if alone else (),
    )
    if most >= total or not any(f.warning for f in files):
        return files, []
    return files, [f"The model's window is small: workspace files have {most:,} characters, not {total:,}."]


def _daily(request: BuildRequest, workspace: Workspace, kind: SessionKind, now: Millis) -> Mapping[str, str]:
    """Daily notes are as private as MEMORY.md."""
    if kind not in (SessionKind.MAIN, SessionKind.PRIVATE) or request.occasion is Occasion.BOOT:
        return {}
    kept = request.daily_logs
    most = min(kept.max_chars, chars(request.budgets.daily) // max(1, kept.days))
    return workspace.daily(now, request.settings.user_timezone, days=kept.days, most=most)


def _instruction(text: Text) -> Text:
    source = text.source or f"instructions/{text.name}"
    body = clean_text(text.text)
    if text.trust is not Trust.OPERATOR:
        body = fence(body, text.trust, source)
    return Text(text.name, body, text.trust, source, text.audience)


def _file_text(file: Fitted, request: BuildRequest) -> Text:
    """A file of the workspace is the owner's, but for the instructions and what the owner opened here."""
    trust, source = trust_of(file.name), f"workspace/{file.name}"
    body = file.text if trust is Trust.OPERATOR else fence(file.text, trust, source)
    audience = FOR_OWNER
    if file.name in FOR_ALL:
        audience = FOR_ANYONE
    elif file.name in request.opened_files and file.name in OPENABLE:
        audience = request.session.audience
    return Text(file.name, f"# {file.name}\n\n{body}", trust, source, audience)


def _noted(name: str, text: str) -> str:
    return f"# {name}\n\n{fence(text, Trust.MODEL, f'workspace/{name}')}"


def _volatile(text: Text) -> Text:
    source = text.source or text.name
    body = clean_text(text.text)
    if body and text.trust is not Trust.OPERATOR:
        body = fence(body, text.trust, source)
    return Text(text.name, body, text.trust, source, text.audience)


_SETTINGS: Final = {
    "compaction",
    "context_pruning",
    "bootstrap_max_chars",
    "bootstrap_total_max_chars",
    "user_timezone",
}
_STATE: Final = (
    "engine",
    "revision",
    "floor",
    "cut",
    "summary_id",
    "fork_session_id",
    "fork_until",
    "first_session",
    "daily",
    "called_at",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """All that a stored context was built from, besides the log. `opened` says that its turn had begun
    with an earlier call, whose opening it repeats."""

    request: BuildRequest
    past: Past
    state: State
    factor: float
    forms: Mapping[str, str] = field(repr=False)
    files: FileReader
    engine_state: Any
    opened: bool


class RecordingReader(FileReader):
    """Reads through another, and keeps what each file then said."""

    def __init__(self, reader: FileReader) -> None:
        super().__init__()
        self._reader = reader
        self.seen: dict[str, FileText] = {}

    def read(self, workspace: Path, name: str) -> FileText:
        found = self.seen[name] = self._reader.read(workspace, name)
        return found


class StoredReader(FileReader):
    """Files as they were; one that was not looked at then was not there."""

    def __init__(self, files: Mapping[str, FileText]) -> None:
        super().__init__()
        self._files = files

    def read(self, workspace: Path, name: str) -> FileText:
        return self._files.get(name) or FileText(name, problem="missing")


def record(
    request: BuildRequest,
    contents: dict[str, str],
    *,
    state: State,
    head: int,
    factor: float,
    forms: Mapping[str, str],
    files: Mapping[str, FileText],
    engine_state: Any,
    opened: bool,
) -> dict[str, Any]:
    """The inputs of a build as they are stored; their texts are added to `contents`, each by its hash."""
    kept: dict[str, str] = {}

    def put(text: str) -> str:
        hash_ = text_digest(text)
        kept[hash_] = text
        return hash_

    body = {
        "head": head,
        "factor": factor,
        "opened": opened,
        "state": {name: getattr(state, name) for name in _STATE},
        "settings": put(_settings([request.settings])),
        "forms": put(json.dumps(forms, ensure_ascii=False, sort_keys=True)) if forms else None,
        "files": {f.name: [put(f.text), f.problem, f.left_out] for f in files.values()},
        "engine": None if engine_state is None else put(_json(engine_state)),
        "instructions": [_text(text, put) for text in request.instructions],
        "volatile": [_text(text, put) for text in request.volatile],
        "input": request.input_id if request.input is None else manifest.ref_of(request.input, kept),
        "pending": [manifest.ref_of(message, kept) for message in request.pending],
        "occasion": request.occasion.value,
        "opened_files": list(request.opened_files),
        "subagent_files": None if request.subagent_files is None else list(request.subagent_files),
        "citations": request.citations_mode,
        "daily": request.daily_logs.model_dump(mode="json", by_alias=True),
        "heard": str(request.session.audience),
    }
    contents |= kept
    return {**body, "kept": sorted(kept)}


def load(tx: Tx, session: Session, stored: manifest.Stored, messages: Sequence[Message]) -> Inputs:
    """The inputs of a stored context again; `messages` are those of it, as they were joined from the
    store."""
    body = stored.inputs
    if body is None:
        raise NotFound(
            "this context was stored by an older version, without what it was built from",
            code="no_inputs",
            hint="It can be replayed from its parts; turns from now on can be built again.",
        )
    texts = blobs.get_many(tx, [*body["kept"], *([stored.tools] if stored.tools else [])])
    account = stored.manifest
    settings = AgentSettings.model_validate(json.loads(texts[body["settings"]]))
    by_ref = _by_ref(tx, stored, messages)
    given = body["input"]
    files = {
        name: FileText(name, texts[hash_], problem, left_out)
        for name, (hash_, problem, left_out) in body["files"].items()
    }
    request = BuildRequest(
        session=replace(session, audience=body["heard"]),
        turn_id=account.turn_id,
        number=account.number,
        model=ModelFacts(account.model, account.window, account.sent_as),
        settings=settings,
        workspace=Path(),
        call=account.call,
        occasion=Occasion(body["occasion"]),
        loaded_tools=_tools(texts[stored.tools]) if stored.tools else (),
        instructions=[_text_of(one, texts) for one in body["instructions"]],
        volatile=[_text_of(one, texts) for one in body["volatile"]],
        input_id=given if given is None or not given.startswith(("b:", "e:")) else None,
        input=_message(given, by_ref, texts) if given and given.startswith(("b:", "e:")) else None,
        pending=[_message(ref, by_ref, texts) for ref in body["pending"]],
        extra_files=[name for name in files if "/" in name and not name.startswith("memory/")],
        opened_files=body["opened_files"],
        subagent_files=None if body["subagent_files"] is None else tuple(body["subagent_files"]),
        citations_mode=body["citations"],
        daily_logs=DailyLogs.model_validate(body["daily"]),
        record=False,
    )
    revisions = {ref.split("@")[0]: int(ref.split("@")[1].split("/")[0]) for ref in _entry_refs(by_ref)}
    state = State(session_id=session.id, agent_id=session.agent_id, updated_at=Millis(0), **body["state"])
    return Inputs(
        request=request,
        past=Past(body["head"], account.created_at, revisions),
        state=state,
        factor=body["factor"],
        forms=json.loads(texts[body["forms"]]) if body["forms"] else {},
        files=StoredReader(files),
        engine_state=json.loads(texts[body["engine"]]) if body["engine"] else None,
        opened=body["opened"],
    )


def _by_ref(tx: Tx, stored: manifest.Stored, messages: Sequence[Message]) -> dict[str, Message]:
    refs = manifest.unpack(tx, stored.refs)
    spoken = messages[1:] if stored.system else messages
    return dict(zip(refs, spoken, strict=True))


def _entry_refs(by_ref: Iterable[str]) -> list[str]:
    return [ref[2:] for ref in by_ref if ref.startswith("e:")]


def _message(ref: str, by_ref: Mapping[str, Message], texts: Mapping[str, str]) -> Message:
    known = by_ref.get(ref)
    return known if known is not None else decode(texts[ref[2:]])


def _tools(text: str) -> tuple[ToolSpec, ...]:
    return tuple(ToolSpec(one["name"], one["description"], one["parameters"]) for one in json.loads(text))


def _text(text: Text, put: Any) -> list[str]:
    return [text.name, put(text.text), text.trust.label, text.source, str(text.audience)]


def _text_of(kept: Sequence[str], texts: Mapping[str, str]) -> Text:
    name, hash_, trust, source, audience = kept
    return Text(name, texts[hash_], Trust.parse(trust), source, audience)  # type: ignore[arg-type]


def _encode(settings: Sequence[AgentSettings]) -> str:
    return _json(settings[0].model_dump(mode="json", by_alias=True, include=_SETTINGS))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_settings: Remembered[AgentSettings, str] = Remembered(_encode, most=100)


@dataclass(frozen=True, slots=True)
class Opening:
    stable: Stable
    carrier: CarrierMessage
    sections: tuple[Section, ...]


def opening_of(tx: Tx, turn_id: str) -> Opening | None:
    """The opening of a turn whose first call was stored; None if it was not."""
    stored = manifest.first_of_turn(tx, turn_id)
    if stored is None or stored.carrier is None:
        return None
    contents = blobs.get_many(tx, [*stored.system, stored.carrier])
    named = [s for s in stored.manifest.sections if s.place == "system"]
    system = tuple(
        Text(section.name, contents[hash_], Trust.parse(section.trust), section.source, section.audience)
        for section, hash_ in zip(named, stored.system, strict=True)
    )
    carrier = decode(contents[stored.carrier])
    if not isinstance(carrier, CarrierMessage):
        return None
    moving = tuple(s for s in stored.manifest.sections if s.place == "carrier")
    return Opening(Stable(system, (), {}, stored.manifest.warnings), carrier, moving)
