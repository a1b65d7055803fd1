"""The `holdfast` program: its commands, by name."""

from __future__ import annotations

from typing import Final

import click

from holdfast import __version__
from holdfast.cli.groups import App, LazyGroup

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
