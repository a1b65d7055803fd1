"""The order of a context, so that providers can cache it: what is stable first, what changes last.

    tools · instructions · workspace files · daily notes · summary · history
    ── carrier · the user's words · this turn

Nothing before the carrier depends on the clock, the pressure or the question.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.clock import Millis
from holdfast.context.budget import chars
from holdfast.context.fence import fence
from holdfast.context.messages import CarrierMessage, Trust
from holdfast.context.pressure import Pressure
from holdfast.context.request import BuildRequest, Text
from holdfast.context.states import State
from holdfast.context.workspace import (
    FOR_ALL,
    OCCASIONAL,
    OPENABLE,
    Fitted,
    Occasion,
    SessionKind,
    Workspace,
    kind_of,
    local_time,
    names_for,
    trust_of,
)
from holdfast.log import FOR_ANYONE, FOR_OWNER
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
