"""What the doctor looks at in contexts: whether every entry can be reached through the summaries over it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from holdfast.cli.findings import Finding, Patient
from holdfast.errors import NotFound
from holdfast.log import OWNER

if TYPE_CHECKING:
    from holdfast.context.lossless import Problem
    from holdfast.log import Store

MOST_SESSIONS: Final = 200
MOST_SECONDS: Final = 5.0
_MOST_SHOWN: Final = 3


def check_context(patient: Patient) -> Iterator[Finding]:
    """The sessions that were used last, as many as can be looked at in a few seconds."""
    from holdfast import migrations

    if patient.config is None:
        return
    yield from _slot(patient.config.plugins.slots.context_engine)
    with _store(patient) as store:
        if store is None:
            return
        with store.read(OWNER) as tx:
            if migrations.current(tx.conn) != migrations.HEAD:
                return
        broken, looked, all_of_them = _examined(store)
    for session_id, problems in broken.items():
        fix = partial(_repair, patient, session_id)
        yield Finding("fail", _said(session_id, problems), "Run `holdfast doctor --fix`.", fix)
    if not broken:
        which = "all" if all_of_them else "the last used of the"
        yield Finding("ok", f"every entry can be reached: looked at {which} sessions ({looked})")


def _slot(name: str) -> Iterator[Finding]:
    """Nothing stands in for an engine that is not there: every turn would fail."""
    from holdfast.context import engines

    if name not in engines:
        said = f"plugins.slots.contextEngine names {name!r}, which is no engine: every turn will fail"
        yield Finding("fail", said, f"Name one of {', '.join(engines)}.")


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
    from holdfast.context.lossless import repair

    with _store(patient) as store:
        if store is not None:
            store.run(OWNER, lambda tx: repair(tx, session_id))


@contextmanager
def _store(patient: Patient) -> Iterator[Store | None]:
    from holdfast.cli.stores import bare_store
    from holdfast.runtime import configured_url

    assert patient.config is not None
    try:
        store = bare_store(configured_url(patient.home, patient.config))
    except NotFound:
        yield None
        return
    with closing(store):
        yield store
