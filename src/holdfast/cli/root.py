"""The `holdfast` program: its commands by name, loaded when they are called, and what they share."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from holdfast import __version__
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.config import ConfigStore
    from holdfast.home import Home
    from holdfast.log import Store, Tx
    from holdfast.runtime import Holdfast
    from holdfast.runtime.shared_home import SharedHome


TRACEBACK = "--traceback"


class App:
    """What the commands of one call share: which home it is about."""

    def __init__(self) -> None:
        self.given: str | None = None

    @property
    def home(self) -> Home:
        from holdfast.home import Home

        return Home.locate(self.given)

    def open(
        self, *, create: bool = False, store_url: str | None = None, writes_index: bool = False
    ) -> Holdfast:
        """Open the home; one that is not there is an error unless the command is there to make it.

        A search index that another process has open is read as that leaves it, unless `writes_index`.
        """
        from holdfast.errors import NotFound
        from holdfast.runtime import open_home

        if not create and not self.home.path.is_dir():
            raise NotFound(f"there is no home at {self.home.path}", hint="Make one with `holdfast init`.")
        if store_url is None and not create:
            store_url = self._store_url()
        return open_home(self.home.path, store_url=store_url, may_follow=not writes_index)

    @contextmanager
    def acting(self) -> Iterator[Tx]:
        """A transaction of the owner's at the terminal, as the audit trail is to tell it."""
        from holdfast.log import OWNER, Origin

        with self.open() as hold, hold.store.write(OWNER, ordered=False) as tx:
            tx.origin = Origin("cli")
            yield tx

    def note(self, act: str, target: str, **details: str) -> None:
        """Write down what was done at the terminal to files of the home, which no transaction holds."""
        from holdfast.log import audit

        with self.acting() as tx:
            audit.note(tx, act, target, **details)

    def config_store(self) -> ConfigStore:
        """The config of the home, to be changed: in its file, or in the store where it lies there."""
        from holdfast.config import Author, ConfigStore

        config = ConfigStore(self.home.config, author=Author(surface="cli"))
        if config.is_shared:
            config.publisher = self.shared_home()
        return config

    def shared_home(self) -> SharedHome:
        """What lies in the store for all gateways, opened when it is asked for."""
        from holdfast.runtime.shared_home import SharedHome

        return SharedHome(self.home, self._opened_store)

    @contextmanager
    def _opened_store(self) -> Iterator[Store]:
        with self.open() as hold:
            yield hold.store

    def _store_url(self) -> str:
        from holdfast.cli.commands.store import url_in_use
        from holdfast.config import load_config

        return url_in_use(self.home, load_config(self.home.config))


pass_app = click.make_pass_decorator(App, ensure=True)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _keep_home(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    app = ctx.ensure_object(App)
    if value is not None:
        app.given = value


def _home_option() -> click.Option:
    return click.Option(
        ["--home"],
        metavar="DIR",
        expose_value=False,
        callback=_keep_home,
        help="The home folder; else $HOLDFAST_HOME, else ~/.holdfast.",
    )


class Command(click.Command):
    """A command that takes `--home` like every other."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(_home_option())


class Group(click.Group):
    """A group of such commands."""

    command_class = Command
    group_class = type

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(_home_option())


class LazyGroup(Group):
    """The root: commands by name, with the line that the help shows, loaded from `module:attribute`."""

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return _of_a_plugin(ctx.ensure_object(App), cmd_name)
        module, _, attribute = self._lazy[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._lazy.items()])

    def main(  # type: ignore[override]
        self, args: Any = None, prog_name: str | None = None, *, standalone_mode: bool = True, **extra: Any
    ) -> Any:
        """Run, and turn every error into one line: the only place that does."""
        given = list(sys.argv[1:] if args is None else args)
        traced = TRACEBACK in given
        given = [text for text in given if text != TRACEBACK]
        if not standalone_mode or traced:
            return super().main(given, prog_name, standalone_mode=standalone_mode, **extra)
        try:
            code = super().main(given, prog_name, standalone_mode=False, **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(2)
        except click.UsageError as error:
            _refuse(error.format_message(), _how_to_use(error), 2)
        except click.ClickException as error:
            _refuse(error.format_message(), "", 1)
        except click.Abort:
            _refuse("interrupted", "", 1)
        except HoldfastError as error:
            _refuse(error.message, error.hint, 2 if 400 <= error.status < 429 else 1)
        except Exception as error:  # noqa: BLE001 - the last boundary: a person gets a line, not a traceback
            _refuse(f"{type(error).__name__}: {error}", f"This is a fault: run it again with {TRACEBACK}.", 1)
        sys.exit(code if isinstance(code, int) else 0)


def _of_a_plugin(app: App, name: str) -> click.Command | None:
    """A command that a plugin of the home brings; looked for only where no command of ours has that name."""
    from holdfast.config import load_config
    from holdfast.plugins import PluginHost

    home = app.home
    if name.startswith("-") or not home.path.is_dir():
        return None
    config = load_config(home.config)
    host = PluginHost(home, lambda: config)
    if not any(one.found.manifest and "cli" in one.found.manifest.capabilities for one in host.find()):
        return None
    found = (one.registered.cli.get(name) for one in host.load() if one.is_in)
    return next((command for command in found if command is not None), None)


def _how_to_use(error: click.UsageError) -> str:
    path = error.ctx.command_path if error.ctx is not None else "holdfast"
    return f"See `{path} --help`."


def _refuse(what: str, mend: str, code: int) -> NoReturn:
    line = " ".join(what.split()).rstrip(".")
    click.echo(f"error: {line}. {mend}".rstrip(), err=True)
    sys.exit(code)


_AT: Final = "holdfast.cli.commands"
COMMANDS: Final = {
    "up": (f"{_AT}.up:up", "Set everything up and serve."),
    "init": (f"{_AT}.up:init", "Write a commented config and a workspace."),
    "onboard": (f"{_AT}.onboard:onboard", "Find a model, try it, write the config after a yes."),
    "doctor": (f"{_AT}.doctor:doctor", "Say what is wrong and how to mend it."),
    "status": (f"{_AT}.status:status", "What is running and what is there."),
    "agent": (f"{_AT}.chat:agent", "One turn: say something, get the reply."),
    "chat": (f"{_AT}.chat:chat", "Talk in the terminal."),
    "sessions": (f"{_AT}.sessions:sessions", "List, show, reset, export, import, archive."),
    "export-trajectory": (f"{_AT}.sessions:trajectory", "A session's entries and turns as JSONL."),
    "context": (f"{_AT}.context:context", "Show, diff, replay what a model was given."),
    "agents": (f"{_AT}.agents:agents", "List, add, remove; which one a message goes to."),
    "skills": (f"{_AT}.skills:skills", "List, info, check, search, install, publish; versions in the store."),
    "plugins": (f"{_AT}.plugins:plugins", "List, info, install, enable, disable, uninstall, doctor."),
    "config": (f"{_AT}.config:config", "Show, import, export; versions in the store, and back to one."),
    "memory": (f"{_AT}.memory:memory", "Index, search, get, status, collections."),
    "board": (f"{_AT}.board:board", "Topics, tasks, spaces, search, context, log."),
    "agenda": (f"{_AT}.agenda:agenda", "What is due."),
    "heartbeat": (f"{_AT}.agenda:heartbeat", "The agents' pulse: status, now."),
    "continuation": (f"{_AT}.chains:continuation", "What agents elected: list, cancel, stop."),
    "chains": (f"{_AT}.chains:chains", "All that follows from one message; show one as a tree."),
    "stop-all": (f"{_AT}.chains:stop_all", "Stop everything until it is released."),
    "cron": (f"{_AT}.agenda:cron", "Standing tasks: list, add, remove, run."),
    "channels": (f"{_AT}.channels:channels", "Where people write: list, pair, send, deliveries."),
    "login": (f"{_AT}.login:login", "Log in to a provider of models; without a name: who is logged in."),
    "logout": (f"{_AT}.login:logout", "Forget a login."),
    "approvals": (f"{_AT}.approvals:approvals", "What agents ask for: list, approve, deny, allow."),
    "token": (f"{_AT}.tokens:token", "Print the home's own admin token."),
    "tokens": (f"{_AT}.tokens:tokens", "Add, list, revoke."),
    "connect": (f"{_AT}.connect:connect", "Make another program use this home."),
    "mcp": (f"{_AT}.mcp:mcp", "Serve other agents over MCP; use the servers of others."),
    "users": (f"{_AT}.people:users", "People who may log in: list, add, invite, change."),
    "teams": (f"{_AT}.people:teams", "Who shares a space and agents: list, add, join, leave."),
    "audit": (f"{_AT}.people:audit", "Who did what: list, verify, export."),
    "import": (f"{_AT}.adopt:import_", "Adopt the home of another program."),
    "store": (f"{_AT}.store:store", "Migrate, check, copy."),
    "backup": (f"{_AT}.backup:backup", "Back the home up, while it runs."),
    "restore": (f"{_AT}.backup:restore", "Make a home from a backup."),
    "export": (f"{_AT}.backup:export", "Write everything in open forms: JSON lines, Markdown, files."),
    "service": (f"{_AT}.service:service", "Run in the background: install, uninstall, status."),
}


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="holdfast")
@click.option("--lenient", is_flag=True, help="Warn of settings that do nothing, and go on without.")
@click.pass_context
def cli(ctx: click.Context, lenient: bool) -> None:
    """Holdfast: a context runtime for persistent AI agents.

    Begin with `holdfast onboard`, or with `holdfast up`.
    """
    ctx.ensure_object(App)
    if lenient:
        from holdfast.config.source import leniently

        ctx.with_resource(leniently())
