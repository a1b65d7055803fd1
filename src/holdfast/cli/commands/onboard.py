"""`holdfast onboard`: the first minutes. Finds a model, tries it, tells what is missing, asks and writes."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from holdfast.cli.output import cell, print_json
from holdfast.cli.root import App, Command, json_option, pass_app
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.agents.loop import RunStatus
    from holdfast.config import Config
    from holdfast.runtime import Holdfast

OPENCLAW: Final = "~/.openclaw"
GREETING: Final = "Hello! Answer with one short sentence."
TRY_SECONDS: Final = 180.0
_NO_MODEL: Final = (
    "No model was found. Set ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY or OPENROUTER_API_KEY in this "
    "shell, or start Ollama, LM Studio or llama.cpp on this machine; then run `holdfast onboard` again."
)


@dataclass(frozen=True, slots=True)
class Tried:
    """One turn of the agent, of which nothing is kept; why there was no answer, and what to do about it."""

    answered: bool
    seconds: float = 0.0
    reply: str = ""
    error: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """Somewhere that a model was looked for."""

    provider: str
    found: bool
    what: str


@dataclass(slots=True)
class Onboarding:
    """What was found and done; what is `missing` is told in whole sentences."""

    home: str
    places: list[Place] = field(default_factory=list)
    model: str | None = None
    configured: bool = False
    tried: Tried | None = None
    openclaw: str | None = None
    channels: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)


@click.command(cls=Command)
@click.option("-y", "--yes", is_flag=True, help="Write the config without asking.")
@click.option("--model", metavar="REF", help="provider/model; else the first that is found.")
@click.option("--import", "import_from", metavar="DIR", help="Take over this OpenClaw home as well.")
@click.option("--no-try", is_flag=True, help="Ask no model anything.")
@json_option
@pass_app
@click.pass_context
def onboard(
    ctx: click.Context,
    app: App,
    yes: bool,
    model: str | None,
    import_from: str | None,
    no_try: bool,
    as_json: bool,
) -> None:
    """Find a model, try it with one turn, and write the config after a yes; exit 1 if nothing answers.

    Nothing is kept of the turn, and nothing is written without a yes. In a script: --yes, and --json.

    \b
    Examples:
      holdfast onboard
      holdfast onboard --yes --json --model ollama/qwen3
    """
    asks = not yes and not as_json and sys.stdin.isatty()
    say = _quiet if as_json else _say
    done = Onboarding(str(app.home.path))
    config = _config(app)
    asyncio.run(_look(app, config, done, model))
    _tell_places(done, say)
    if done.model is not None and not no_try:
        say("trying", f"{done.model} with one short turn …")
        done.tried = _try(app, done.model)
        _tell_tried(done, say)
    _write(app, done, say, wanted=yes or (asks and _agreed(done)))
    _offer_import(app, done, say, import_from, asks=asks)
    _offer_channel(app, done, say, asks=asks)
    if as_json:
        print_json(asdict(done))
    else:
        _tell_end(done)
    answered = done.model is not None if done.tried is None else done.tried.answered
    ctx.exit(0 if answered else 1)


def _config(app: App) -> Config:
    from holdfast.config import load_config

    return load_config(app.home.config)


async def _look(app: App, config: Config, done: Onboarding, wanted: str | None) -> None:
    """Keys are named and never shown; nobody but servers on this machine is asked."""
    from holdfast.agents.models import RECALL, ModelRef, Models
    from holdfast.clock import SystemClock

    models = Models(app.home, lambda: config, SystemClock())
    try:
        rows = await models.report()
    finally:
        await models.aclose()
    settings = config.agent(config.default_agent_id)
    chosen = models.choice(settings, None if wanted is None else ModelRef.parse(wanted))[0]
    done.places = [Place(row.provider, row.found, row.text) for row in rows]
    done.model = None if chosen == RECALL else str(chosen)
    done.configured = settings.model.primary is not None and wanted in (None, settings.model.primary)
    done.channels = [name for name, channel in config.channels.items() if channel.enabled]
    if done.model is None:
        done.missing.append(_NO_MODEL)
    theirs = Path(OPENCLAW).expanduser()
    done.openclaw = str(theirs) if (theirs / "openclaw.json").is_file() else None


def _try(app: App, model: str) -> Tried:
    """A whole turn, with all that an agent's first one has in its prompt; in a home that is there, or in one
    that is gone afterwards."""
    from holdfast.cli.client import running_gateway

    begun = time.monotonic()
    try:
        there = running_gateway(app.home, timeout=TRY_SECONDS) if app.home.path.is_dir() else None
        if there is not None:
            body = {"messages": [{"role": "user", "content": GREETING}], "store": False, "model": "holdfast"}
            said = there.call("POST", "/v1/chat/completions", body)
            reply = str(said["choices"][0]["message"]["content"])
        else:
            with _opened(app) as hold:
                begun = time.monotonic()
                reply = asyncio.run(_turn(hold, model))
    except HoldfastError as error:
        return Tried(False, _since(begun), error=error.message, hint=error.hint or "")
    return Tried(True, _since(begun), reply.strip())


def _since(begun: float) -> float:
    return round(time.monotonic() - begun, 1)


@contextmanager
def _opened(app: App) -> Iterator[Holdfast]:
    from holdfast.runtime import open_home

    if app.home.path.is_dir():
        with app.open() as hold:
            yield hold
        return
    with tempfile.TemporaryDirectory() as folder, open_home(folder) as hold:
        yield hold


async def _turn(hold: Holdfast, model: str) -> str:
    from holdfast.agents.loop import Ask
    from holdfast.cli.chat.line import turns_only
    from holdfast.ids import uuid7

    agent = hold.settings.default_agent_id
    async with turns_only(hold):
        await hold.agency.models.discover()
        key = f"agent:{agent}:onboard:dm:once-{uuid7()}"
        ask = Ask(text=GREETING, session_key=key, model=model, one_off=True, stored=False, commands=False)
        accepted = await hold.runs.accept(ask)
        status = await hold.runs.wait(accepted.run_id, TRY_SECONDS)
        if not status.ended:
            status = await hold.runs.cancel(accepted.run_id, reason="it took too long")
        await hold.runs.forget(accepted.session_id)
    return _reply(status)


def _reply(status: RunStatus) -> str:
    from holdfast.errors import Unavailable

    if status.ok:
        return status.reply or ""
    hint = "`holdfast doctor` says more; --model names another one."
    raise Unavailable(status.error or f"the turn was {status.status.value}", hint=hint)


def _agreed(done: Onboarding) -> bool:
    if done.model is None or done.configured:
        return click.confirm(f"Write a config and a workspace into {done.home}?", default=True)
    return click.confirm(f"Write a config with {done.model} as the model into {done.home}?", default=True)


def _write(app: App, done: Onboarding, say: Callable[[str, str], None], *, wanted: bool) -> None:
    """The commented config and the workspace, as `init` writes them; and the model, if none was set."""
    from holdfast.cli.commands.up import write_config
    from holdfast.cli.workspaces import prepare_workspaces

    if not wanted:
        say("config", "nothing was written; --yes writes it")
        return
    app.home.prepare()
    written = write_config(app.home)
    store = app.config_store()
    answered = done.tried is None or done.tried.answered
    if done.model is not None and not done.configured and answered:
        store.patch({"agents": {"defaults": {"model": done.model}}})
        done.configured = True
        written = [app.home.config]
    written += prepare_workspaces(app.home, store.current)
    done.written = [str(path) for path in written]
    say("config", f"wrote {len(written)} files into {app.home.path}" if written else "all was there already")


def _offer_import(
    app: App, done: Onboarding, say: Callable[[str, str], None], given: str | None, *, asks: bool
) -> None:
    if given is None and done.openclaw is not None and asks:
        found = f"There is an OpenClaw home at {done.openclaw}. Take it over? (It is only read.)"
        given = done.openclaw if click.confirm(found, default=False) else None
    if given is None:
        if done.openclaw is not None:
            say("openclaw", f"a home is at {done.openclaw}: `holdfast import openclaw` takes it over")
        return
    from holdfast.adopt import adopt_openclaw_home

    with app.open(create=True) as hold:
        report = adopt_openclaw_home(hold, Path(given).expanduser())
    say("openclaw", f"{report.entries_added} log entries were taken over from {given}")


def _offer_channel(app: App, done: Onboarding, say: Callable[[str, str], None], *, asks: bool) -> None:
    """A webhook channel is the one that needs no account elsewhere: any program can be at its other end."""
    if done.channels or not asks or not app.home.config.is_file():
        say("channels", ", ".join(done.channels) or "none yet; see docs/channels.md, or talk here first")
        return
    from secrets import token_urlsafe

    asked = "Address that a chat program takes messages at (empty: no channel)"
    url = click.prompt(asked, default="", value_proc=_address)
    if not url:
        return
    name = click.prompt("A name for that channel", default="webhook")
    secret = token_urlsafe(24)
    app.config_store().patch({"channels": {name: {"url": url, "signingSecret": secret}}})
    done.channels = [name]
    say("channels", f"{name}: sign what you post to /api/channels/{name}/inbound with {secret}")


def _address(given: str) -> str:
    """A `no` to this question is not the name of a place."""
    if (url := given.strip()) and not url.startswith(("http://", "https://")):
        raise click.UsageError("expected what begins with http:// or https://, or nothing")
    return url


def _tell_places(done: Onboarding, say: Callable[[str, str], None]) -> None:
    for place in done.places:
        if place.found:
            say("found", f"{place.provider}: {place.what}")
    if done.model is None:
        say("looked", f"in {len(done.places)} places: {', '.join(place.provider for place in done.places)}")
    else:
        say("model", f"{done.model}{' (as configured)' if done.configured else ''}")


def _tell_tried(done: Onboarding, say: Callable[[str, str], None]) -> None:
    tried = done.tried
    assert tried is not None
    if tried.answered:
        say("answer", f"after {tried.seconds:g} s: {tried.reply[:200]}")
    else:
        done.missing.append(f"{done.model} gave no answer: {tried.error.rstrip('.')}. {tried.hint}".strip())


def _tell_end(done: Onboarding) -> None:
    for line in done.missing:
        _say("missing", line)
    if done.tried is not None and done.tried.answered:
        _say("next", "`holdfast chat` to talk, `holdfast up` for the pages, `holdfast doctor` if in doubt")


def _say(what: str, text: str) -> None:
    click.echo(f"{what:<9} {cell(text)}")


def _quiet(what: str, text: str) -> None:
    """With --json all is told at the end."""
