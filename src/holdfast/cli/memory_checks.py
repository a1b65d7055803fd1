"""What the doctor looks at in memory and contexts: is all found, who embeds, can every entry be reached."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.cli.commands.doctor import Finding, Patient
from holdfast.log import OWNER

if TYPE_CHECKING:
    from holdfast.config import Config
    from holdfast.context.lossless import Problem
    from holdfast.log import Store, Tx
    from holdfast.memory.damage import Damage
    from holdfast.memory.embedding import EmbedderChain


PROBE: Final = "The heron by the weir is called Winifred."
QUESTION: Final = "what is the name of the heron?"
_LATE: Final = 3


def check_memory(patient: Patient) -> Iterator[Finding]:
    config = patient.config
    if config is None:
        yield Finding("warn", "memory was not looked at: the config cannot be used", "See `config` above.")
        return
    from holdfast.memory.embedding import chain_from

    chain = chain_from(config.memory.search.embedding, os.environ, patient.home.path / "models")
    yield _finds_what_it_is_given(chain)
    names = [f"{one.id.provider}/{one.id.model}" for one in (*chain.preferred, chain.base)]
    yield Finding("ok", f"embedders: {', then '.join(names)}")
    yield from _programs(config)
    yield from _freshness(patient, config)


def _finds_what_it_is_given(chain: EmbedderChain) -> Finding:
    """The whole way in small: a file is written, indexed, and asked for."""
    from holdfast.config.memory import MemoryConfig
    from holdfast.memory import open_memory

    with tempfile.TemporaryDirectory(prefix="holdfast-doctor-") as place:
        notes = Path(place)
        (notes / "MEMORY.md").write_text(f"# Birds\n\n{PROBE}\n")
        (notes / "memory").mkdir()
        (notes / "memory/other.md").write_text("The boiler was serviced in March.\n")
        config = MemoryConfig()
        with open_memory(
            notes / "index", chain=chain, workspace=lambda agent: notes, config=lambda agent: config
        ) as memory:
            memory.update("main")
            found = memory.find(QUESTION)
    if found.hits and PROBE in found.hits[0].snippet:
        return Finding("ok", f"a probe was indexed and found ({found.diagnostics.mode} search)")
    return Finding("fail", "a probe was indexed and not found", "Reinstall holdfast, and report this line.")


def _programs(config: Config) -> Iterator[Finding]:
    """For each agent that is to be served by `qmd`, whether that is there."""
    wanted = {
        config.memory_for(a.id).qmd.command
        for a in config.agent_list
        if config.memory_for(a.id).backend == "qmd"
    }
    for command in sorted(wanted):
        if shutil.which(os.path.expanduser(command)) is None:
            mend = "Install it (npm, @tobilu/qmd), or set memory.qmd.command; until then the built-in serves."
            yield Finding("warn", f"memory.backend is qmd, but there is no program {command!r}", mend)
        else:
            yield Finding("ok", f"the program {command!r} is there")


def _freshness(patient: Patient, config: Config) -> Iterator[Finding]:
    """Whether the index can be read, and how long ago each agent's files were looked at."""
    from holdfast.memory.catalogue import Catalogue

    path = patient.home.index / "catalogue.db"
    if not path.is_file():
        yield Finding(
            "ok", "nothing is indexed yet; that begins with `holdfast up` or `holdfast memory index`"
        )
        return
    if config.memory.search.engine != "postgres":
        yield from _readable(patient.home.index)
    catalogue = Catalogue(path)
    try:
        catalogue.check()
        yield from _damage(patient.home.index, catalogue.aside.seen)
        for agent in config.agent_list:
            updated = catalogue.fact(f"updated:{agent.id}")
            interval = int(config.memory_for(agent.id).search.update.interval)
            yield _age(agent.id, None if updated is None else int(updated), interval)
    finally:
        catalogue.close()


def _readable(folder: Path) -> Iterator[Finding]:
    """Everything is read and held against its checksums; what a gateway has open is checked there."""
    from holdfast.errors import Conflict
    from holdfast.memory.damage import FOLDER
    from holdfast.memory.engine import open_index

    try:
        index = open_index(folder)
    except Conflict:
        yield Finding("ok", "the index is open in a running process, which checks it")
        return
    try:
        while index.mend(1.0, thorough=True):
            pass
        health = index.health
        yield from _damage(folder, health.damaged)
        if not health.damaged:
            yield Finding("ok", f"the index can be read: {index.count} documents")
        if health.set_aside:
            kept = f"{len(health.set_aside)} damaged files are kept in {folder / FOLDER} for a look"
            yield Finding("ok", f"{kept}; they may be deleted")
    finally:
        index.close()


def _damage(folder: Path, found: Sequence[Damage]) -> Iterator[Finding]:
    from holdfast.memory.damage import FOLDER

    for one in found:
        said = f"{one.part} was damaged ({one.why}) and set aside in {folder / FOLDER}; it is made again"
        yield Finding("warn", said, "Run `holdfast memory index`, or `holdfast up`, which does it by itself.")


def _age(agent: str, updated: int | None, interval: int) -> Finding:
    mend = "Run `holdfast memory index`, or `holdfast up` to keep it up to date."
    if updated is None:
        return Finding("warn", f"the files of {agent} were never indexed", mend)
    age = max(0, int(time.time() * 1000) - updated)
    said = f"the files of {agent} were indexed {age // 60_000} minutes ago"
    return Finding("ok", said) if age <= _LATE * interval else Finding("warn", said, mend)


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
    from holdfast.cli.agent_checks import may_bring
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
