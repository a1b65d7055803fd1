"""What the doctor looks at in contexts: whether every entry can be reached through the summaries over it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from holdfast.cli.findings import Finding, Patient
from holdfast.log import OWNER

if TYPE_CHECKING:
    from holdfast.context.lossless import Problem
    from holdfast.log import Store, Tx

MOST_SESSIONS: Final = 200
MOST_SECONDS: Final = 5.0
_MOST_SHOWN: Final = 3


def check_context(patient: Patient) -> Iterator[Finding]:
    """The sessions that were used last, as many as can be looked at in a few seconds."""
    from holdfast import migrations
    from holdfast.cli.checks import store_of

    if patient.config is None:
        return
    yield from _slot(patient)
    with store_of(patient) as store:
        if store is None:
            return
        with store.read(OWNER) as tx:
            if migrations.current(tx.conn) != migrations.HEAD:
                return
            yield from _engines(tx, patient.config.plugins.engine)
        broken, looked, all_of_them = _examined(store)
    for session_id, problems in broken.items():
        fix = partial(_repair, patient, session_id)
        yield Finding("fail", _said(session_id, problems), "Run `holdfast doctor --fix`.", fix)
    if not broken:
        which = "all" if all_of_them else "the last used of the"
        yield Finding("ok", f"every entry can be reached: looked at {which} sessions ({looked})")


def _slot(patient: Patient) -> Iterator[Finding]:
    """Nothing stands in for an engine that is not there: every turn would fail. Which engines a plugin brings
    only its code can tell, so that any that declares some may be the one, most likely that of the same name;
    `plugins doctor` loads it."""
    from holdfast.cli.plugin_checks import may_bring
    from holdfast.context import engines

    assert patient.config is not None
    plugins = patient.config.plugins
    named, used = plugins.slots.context_engine, plugins.engine
    if used != named:
        hint = f"Set plugins.entries.{named}.enabled to true to use it."
        yield Finding("warn", f"context engine {named!r} is switched off: {used!r} builds contexts", hint)
    if used in engines:
        return
    bringing = may_bring(patient.home, patient.config, "contextEngine")
    said = f"plugins.slots.contextEngine names {used!r}, which is no engine"
    if not bringing:
        yield Finding("fail", f"{said}: every turn will fail", f"Name one of {', '.join(engines)}.")
    elif used not in bringing:
        hint = "`holdfast plugins doctor` loads them and tells."
        yield Finding("warn", f"{said} unless one of these plugins brings it: {', '.join(bringing)}", hint)


def _engines(tx: Tx, used: str) -> Iterator[Finding]:
    """How engines have fared: the one in use if it fails, any that is still to be told something."""
    from holdfast.context.engine_records import health_of, known_engines

    for id_ in sorted({*known_engines(tx), used}):
        one = health_of(tx, id_)
        since = one["lastErrorAt"] is not None and (one["lastOkAt"] or "") < one["lastErrorAt"]
        if since and id_ == used:
            many = f"{one['failures']} of {one['calls']} calls"
            said = f"context engine {id_!r} fails ({many}): {one['lastError']}"
            yield Finding("fail", said, "See `holdfast status`; fix the engine or name another in the slot.")
        if one["queue"]["waiting"]:
            why = f": {one['queue']['error']}" if one["queue"]["error"] else ""
            said = f"context engine {id_!r} has not heard of {one['queue']['waiting']} turns{why}"
            yield Finding("warn", said, "They are told again by themselves while the gateway runs.")


def _examined(store: Store) -> tuple[dict[str, list[Problem]], int, bool]:
    """What is wrong, by session; how many sessions were looked at; whether those are all."""
    from holdfast.context.lossless import check
    from holdfast.log import sessions

    until = time.monotonic() + MOST_SECONDS
    broken: dict[str, list[Problem]] = {}
    looked = 0
    with store.read(OWNER) as tx:
        found = sessions.listing(tx, status=None, limit=MOST_SESSIONS + 1)
        for session in found[:MOST_SESSIONS]:
            problems = check(tx, session.id)
            if problems:
                broken[session.id] = problems
            looked += 1
            if time.monotonic() > until:
                break
    return broken, looked, looked == len(found)


def _said(session_id: str, problems: list[Problem]) -> str:
    shown = "; ".join(problem.detail for problem in problems[:_MOST_SHOWN])
    more = f"; and {len(problems) - _MOST_SHOWN} more" if len(problems) > _MOST_SHOWN else ""
    return f"the context of session {session_id} is broken: {shown}{more}"


def _repair(patient: Patient, session_id: str) -> None:
    """Nothing is deleted: what cannot be trusted is left aside, and its entries are shown as they are."""
    from holdfast.cli.checks import store_of
    from holdfast.context.lossless import repair

    with store_of(patient) as store:
        if store is not None:
            store.run(OWNER, lambda tx: repair(tx, session_id))
