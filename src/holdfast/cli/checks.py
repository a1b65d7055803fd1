"""What the doctor looks at in the home and its store. A room adds its own by appending to `CHECKS`."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.cli.agent_checks import check_models, check_plugins, check_skills, check_tools
from holdfast.cli.commands.doctor import Finding, Level, Named, Patient
from holdfast.cli.memory_checks import check_context, check_memory
from holdfast.clock import JUMP_MS
from holdfast.log import OWNER

if TYPE_CHECKING:
    from holdfast.home import Home
    from holdfast.log import Store


MOST_FILES: Final = 100_000
_NAMED: Final = 5
_OTHERS: Final = 0o077


def check_permissions(patient: Patient) -> Iterator[Finding]:
    """What the owner may do stays as it is; what others may is taken away."""
    if not patient.home.path.is_dir():
        return
    found = [path for path in islice(_kept(patient), MOST_FILES) if _is_open(path)]
    if not found:
        yield Finding("ok", "the files of the home are for their owner only")
        return
    named = ", ".join(f"{path} (mode {_mode(path):04o})" for path in found[:_NAMED])
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    said = f"others may look into {named}{more}"
    yield Finding("warn", said, "Run `holdfast doctor --fix`.", partial(_close, found))


def _kept(patient: Patient) -> Iterator[Path]:
    """The home and what lies in it, workspaces aside: of those, what Holdfast itself put there."""
    home = patient.home.path
    workspaces = _workspaces(patient)
    yield home
    for folder, folders, files in os.walk(home):
        here = Path(folder)
        folders[:] = [name for name in folders if here / name not in workspaces]
        yield from (here / name for name in (*folders, *files))
    for workspace in workspaces:
        yield from _of_workspace(workspace)


def _workspaces(patient: Patient) -> list[Path]:
    from holdfast.cli.workspaces import workspace_of

    config = patient.config
    usual = {path for path in patient.home.path.glob("workspace*") if path.is_dir()}
    if config is not None:
        usual |= {workspace_of(patient.home, config, agent.id) for agent in config.agent_list}
    return sorted(path for path in usual if path.is_dir())


def _of_workspace(workspace: Path) -> Iterator[Path]:
    from holdfast.templates import FILES

    notes = workspace / "memory"
    own = (workspace / name for name in FILES)
    yield from (path for path in (workspace, *own, workspace / "MEMORY.md", notes) if path.exists())
    yield from (path for path in notes.rglob("*.md"))


def _is_open(path: Path) -> bool:
    """A link says nothing of its own, and what it leads to is not ours to close."""
    try:
        found = path.lstat().st_mode
    except FileNotFoundError:
        return False
    return not stat.S_ISLNK(found) and bool(found & _OTHERS)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def _close(paths: list[Path]) -> None:
    for path in paths:
        if _is_open(path):
            path.chmod(_mode(path) & ~_OTHERS)


OLDEST_SQLITE: Final = (3, 35, 0)
LOW_DISK: Final = 1024**3
NO_DISK: Final = 100 * 1024**2


def check_home(patient: Patient) -> Iterator[Finding]:
    home = patient.home
    if not home.path.is_dir():
        yield Finding("fail", f"there is no home at {home.path}", "Run `holdfast init`.", home.prepare)
        return
    yield _private(home.path, 0o700)


def check_config(patient: Patient) -> Iterator[Finding]:
    """What does nothing is told here also where `--lenient` lets Holdfast start."""
    from holdfast.config import InvalidConfig
    from holdfast.config.source import Texts, check, is_lenient
    from holdfast.config.store import take_out_idle
    from holdfast.errors import ConfigError

    path = patient.home.config
    try:
        check(Texts.read(path).data(str(path)), source=str(path))
    except InvalidConfig as error:
        for problem in error.problems:
            if problem.without_effect is None:
                yield Finding("fail", str(problem), f"Correct it in {path}.")
                continue
            level: Level = "warn" if is_lenient() else "fail"
            mend = f"Take it out of {path}, or have `holdfast doctor --fix` do so."
            yield Finding(level, str(problem), mend, partial(take_out_idle, path))
        return
    except ConfigError as error:
        yield Finding("fail", error.message, error.hint)
        return
    if path.is_file():
        yield Finding("ok", f"{path.name} can be used")
        yield _private(path, 0o600)
    else:
        yield Finding("ok", "there is no holdfast.json; all is at its defaults")


def check_token(patient: Patient) -> Iterator[Finding]:
    path = patient.home.credentials / "token"
    if not path.is_file():
        make = patient.home.admin_token
        yield Finding("warn", "there is no admin token yet", "It is made by `holdfast up` or `token`.", make)
        return
    yield _private(path, 0o600, level="fail")


def check_sqlite(_patient: Patient) -> Iterator[Finding]:
    from holdfast.log.store import sqlite_module

    text = str(sqlite_module().sqlite_version)
    version = tuple(int(part) for part in text.split("."))
    if version < OLDEST_SQLITE:
        yield Finding("fail", f"SQLite is {text}", "pip install pysqlite3, or a newer Python.")
    else:
        yield Finding("ok", f"SQLite is {text}")


def check_extras(patient: Patient) -> Iterator[Finding]:
    if patient.config is None:
        return
    if _store_url(patient).startswith("postgresql") and find_spec("psycopg") is None:
        yield Finding(
            "fail", "the store is PostgreSQL, but psycopg is missing", "pip install 'holdfast[postgres]'"
        )


def check_store(patient: Patient) -> Iterator[Finding]:
    """Reachable, at the current schema, and whole."""
    from holdfast import migrations
    from holdfast.errors import Conflict
    from holdfast.log import check, require_store

    if patient.config is None:
        yield Finding("warn", "the store was not looked at: the config cannot be used")
        return
    with store_of(patient) as store:
        if store is None:
            yield Finding(
                "warn", "there is no store yet", "It is made by `holdfast up`.", partial(_migrate, patient)
            )
            return
        try:
            if not store.postgres:
                require_store(store, used=patient.home.was_used())
        except Conflict as error:
            yield Finding("fail", error.message, error.hint)
            return
        with store.read(OWNER) as tx:
            version = migrations.current(tx.conn)
        if version != migrations.HEAD:
            said = f"the store is at {version or 'no version'}, not {migrations.HEAD}"
            mend = migrations.way_to_head(version)
            known = version is None or migrations.is_known(version)
            yield Finding("fail", said, f"{mend}.", partial(_migrate, patient) if known else None)
            return
        problems = check(store)
        for problem in problems:
            yield Finding("fail", problem, "Restore a copy, or report it with this line.")
        if not problems:
            where = f" ({store.url.render_as_string(hide_password=True)})" if store.postgres else ""
            yield Finding("ok", f"the store is whole, at {version}{where}")


def check_durability(patient: Patient) -> Iterator[Finding]:
    """Whether what is acknowledged survives what the config says that it does."""
    if patient.config is None:
        return
    wanted = patient.config.store.durability
    with store_of(patient) as store:
        if store is None:
            return
        lax: list[str] = []
        if store.postgres:
            with store.read(OWNER) as tx:
                for name in ("fsync", "synchronous_commit", "full_page_writes"):
                    if tx.conn.exec_driver_sql(f"SHOW {name}").scalar() == "off":
                        lax.append(name)
    if wanted == "process":
        mend = 'Set store.durability to "power" if it should.'
        yield Finding("warn", "what was acknowledged last may not survive a power cut", mend)
    elif lax:
        said = f"a power cut may take what was acknowledged: the PostgreSQL server has {', '.join(lax)} off"
        yield Finding("warn", said, "Set it to on in postgresql.conf.")
    else:
        yield Finding("ok", "what is acknowledged survives a power cut")


def check_work(patient: Patient) -> Iterator[Finding]:
    """Work that nobody is at any more, and turns that were cut off."""
    from holdfast import migrations
    from holdfast.log import agenda
    from holdfast.log.leases import is_dead
    from holdfast.log.upkeep import stats

    if patient.config is None:
        return
    with store_of(patient) as store:
        if store is None:
            return
        with store.read(OWNER) as tx:
            if migrations.current(tx.conn) != migrations.HEAD:
                return
            running = agenda.listing(tx, statuses=[agenda.Status.RUNNING], limit=500)
            stale = [i for i in running if (i.lease_until or 0) <= tx.now or is_dead(i.owner or "")]
            cut_off = stats(tx).turns.get("interrupted", 0)
    if stale:
        mend = "They are taken up again when a gateway runs: `holdfast up`."
        yield Finding("warn", f"{len(stale)} agenda items were left by a process that is gone", mend)
    if cut_off:
        mend = "See `holdfast sessions show KEY`; send the message again if it still matters."
        yield Finding("warn", f"{cut_off} turns were interrupted", mend)
    if not stale and not cut_off:
        yield Finding("ok", "no work was left lying")


def check_clock(patient: Patient) -> Iterator[Finding]:
    """Where PostgreSQL's clock counts, a machine whose own differs: leases hold, but its logs mislead."""
    if patient.config is None:
        return
    with store_of(patient) as store:
        if store is None or not store.postgres:
            return
        store.probe()
        skew = store.skew_ms
    if abs(skew) > JUMP_MS:
        way = "ahead of" if skew > 0 else "behind"
        said = f"this machine's clock is {abs(skew) / 1000:.1f} s {way} the database's, which is what counts"
        yield Finding("warn", said, "Keep both by NTP: log files and times of files are this machine's.")
    else:
        yield Finding("ok", "this machine's clock agrees with the database's")


def check_halt(patient: Patient) -> Iterator[Finding]:
    """A home that somebody stopped and nobody released."""
    from holdfast import migrations
    from holdfast.cli.output import when
    from holdfast.log import agenda

    if patient.config is None:
        return
    with store_of(patient) as store:
        if store is None:
            return
        with store.read(OWNER) as tx:
            if migrations.current(tx.conn) != migrations.HEAD:
                return
            halt = agenda.halted(tx)
    if halt is not None:
        said = f"everything is stopped since {when(halt.since)} ({halt.reason}): no agent does anything"
        yield Finding("warn", said, "Run `holdfast stop-all --release`.")


def check_surfaces(patient: Patient) -> Iterator[Finding]:
    """Groups that the owner declared private, and in which somebody else was seen to write."""
    from holdfast import migrations
    from holdfast.log import surfaces

    config = patient.config
    if config is None or not any(channel.private for channel in config.channels.values()):
        return
    with store_of(patient) as store:
        if store is None:
            return
        with store.read(OWNER) as tx:
            if migrations.current(tx.conn) != migrations.HEAD:
                return
            seen = {name: surfaces.of_channel(tx, name) for name in config.channels}
    exposed = [
        (name, id_, one.sender)
        for name, found in seen.items()
        for id_, one in found
        if config.is_private(name, id_)
    ]
    for name, id_, sender in exposed:
        mend = f"`holdfast channels private {name} {id_}` if they are gone, with --remove if not."
        yield Finding("warn", f"{name} {id_} is private no longer: {sender} wrote there", mend)
    if not exposed:
        yield Finding("ok", "nobody else was seen where only you read")


def check_workspaces(patient: Patient) -> Iterator[Finding]:
    from holdfast.cli.workspaces import cut_files, workspace_of
    from holdfast.templates import missing, write_workspace

    config = patient.config
    for agent in config.agent_list if config is not None else ():
        assert config is not None
        folder = workspace_of(patient.home, config, agent.id)
        lacks = missing(folder)
        if lacks:
            said = f"the workspace of {agent.id} lacks {', '.join(lacks)}"
            yield Finding("warn", said, "Run `holdfast init`.", partial(write_workspace, folder))
        else:
            yield Finding("ok", f"the workspace of {agent.id} is complete")
        for words in cut_files(patient.home, config, agent.id):
            mend = "Shorten it: what is only sometimes needed goes to other files, read when it is."
            yield Finding("warn", f"the workspace of {agent.id}: {words}", mend)


def check_disk(patient: Patient) -> Iterator[Finding]:
    from holdfast.cli.output import size

    place = next(folder for folder in (patient.home.path, *patient.home.path.parents) if folder.is_dir())
    free = shutil.disk_usage(place).free
    level: Level = "fail" if free < NO_DISK else "warn" if free < LOW_DISK else "ok"
    yield Finding(level, f"{size(free)} of disk are free", "" if level == "ok" else "Free some space.")


def check_port(patient: Patient) -> Iterator[Finding]:
    from holdfast.cli.client import find_gateway
    from holdfast.errors import Unavailable
    from holdfast.gateway.server import listen

    if patient.config is None:
        return
    seen = find_gateway(patient.home, patient.config)
    if seen.state == "ours":
        yield Finding("ok", f"the gateway answers at {seen.url}")
        return
    options = patient.config.gateway
    try:
        listen(options.host, options.port).close()
    except Unavailable as error:
        mend = "Stop what uses it, or set gateway.port or `holdfast up --port` to another."
        yield Finding("fail", error.message, mend)
    else:
        yield Finding("ok", f"no gateway runs; port {options.port} is free")


CHECKS: Final[list[Named]] = [
    Named("home", check_home),
    Named("config", check_config),
    Named("token", check_token),
    Named("files", check_permissions),
    Named("sqlite", check_sqlite),
    Named("extras", check_extras),
    Named("store", check_store),
    Named("work", check_work),
    Named("clock", check_clock),
    Named("halt", check_halt),
    Named("surfaces", check_surfaces),
    Named("workspace", check_workspaces),
    Named("disk", check_disk),
    Named("port", check_port),
    Named("memory", check_memory),
    Named("context", check_context),
    Named("plugins", check_plugins),
    Named("models", check_models),
    Named("tools", check_tools),
    Named("skills", check_skills),
    Named("durability", check_durability),
]


def _private(path: Path, mode: int, *, level: Level = "warn") -> Finding:
    """Whether only the owner may look in."""
    found = stat.S_IMODE(path.stat().st_mode)
    if not found & 0o077:
        return Finding("ok", f"{path} is for its owner only")
    said = f"others may look into {path} (mode {found:04o})"
    return Finding(level, said, f"chmod {mode:o} {path}", partial(path.chmod, mode))


def _store_url(patient: Patient) -> str:
    from holdfast.cli.commands.store import url_in_use

    assert patient.config is not None
    return url_in_use(patient.home, patient.config)


@contextmanager
def store_of(patient: Patient) -> Iterator[Store | None]:
    """The store as it stands; None where its file is not there yet."""
    from holdfast.cli.commands.store import bare_store
    from holdfast.errors import NotFound

    try:
        store = bare_store(_store_url(patient))
    except NotFound:
        yield None
        return
    try:
        yield store
    finally:
        store.close()


def _migrate(patient: Patient) -> None:
    from holdfast import migrations
    from holdfast.cli.commands.store import bare_store

    home: Home = patient.home
    home.prepare()
    store = bare_store(_store_url(patient), must_exist=False)
    try:
        migrations.migrate(store)
    finally:
        store.close()
