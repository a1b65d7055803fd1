"""`holdfast status`: what is running and what is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.commands.chains import chains_line, halted_line
from holdfast.cli.output import print_fields, print_json, size
from holdfast.cli.root import App, Command, json_option, pass_app
from holdfast.clock import JUMP_MS
from holdfast.log import OWNER

if TYPE_CHECKING:
    from holdfast.runtime import Holdfast

MOST_CHAINS = 3


@click.command(cls=Command)
@json_option
@pass_app
@click.pass_context
def status(ctx: click.Context, app: App, as_json: bool) -> None:
    """What is running and what is there; exit 1 if the config cannot be used."""
    from holdfast import __version__
    from holdfast.cli.client import find_gateway
    from holdfast.errors import ConfigError

    body: dict[str, Any] = {"version": __version__, "home": str(app.home.path)}
    problem: ConfigError | None = None
    config = None
    try:
        with app.open() as hold:
            config = hold.settings
            body |= _inside(hold)
    except ConfigError as error:
        problem = error
    seen = find_gateway(app.home, config)
    body["gateway"] = {"running": seen.state == "ours", "url": seen.url, "version": seen.version}
    if seen.state == "ours":
        body["health"] = _health(app, seen.url)
        body["plugins"] = _plugins_there(app, seen.url) or body.get("plugins", [])
    if seen.state == "foreign":
        body["gateway"]["note"] = "something else answers there"
    body["configErrors"] = [] if problem is None else _lines(problem)
    if as_json:
        print_json(body)
    else:
        _print(body)
    ctx.exit(0 if problem is None else 1)


def _health(app: App, url: str) -> dict[str, Any] | None:
    """How the parts of the running gateway fare, by its own word; None from one that says nothing of it."""
    from holdfast.cli.client import Client
    from holdfast.errors import HoldfastError

    try:
        told = Client(url, app.home.admin_token()).get("/api/health")
    except HoldfastError:
        return None
    return told if isinstance(told, dict) else None


def _plugins_there(app: App, url: str) -> list[dict[str, Any]]:
    """How plugins fare in the running gateway, where they are loaded."""
    from holdfast.cli.client import Client
    from holdfast.errors import HoldfastError

    try:
        told = Client(url, app.home.admin_token()).get("/api/plugins")
    except HoldfastError:
        return []
    return told if isinstance(told, list) else []


def _health_line(health: dict[str, Any] | None) -> str:
    if health is None:
        return "not told"
    store = health["store"]["problem"]
    bad = [_part_words(part) for part in health["parts"] if part["state"] not in ("ok", "done")]
    bad += [] if store is None else [f"store: {store['message']}"]
    again = sum(part["restarts"] for part in health["parts"])
    restarted = f" ({again} restarts of parts)" if again else ""
    return ("; ".join(bad) if bad else f"all {len(health['parts'])} parts work") + restarted


def _part_words(part: dict[str, Any]) -> str:
    why = f" ({part['lastError']})" if part["lastError"] else ""
    return f"{part['name']} is {part['state']}{why}"


def _inside(hold: Holdfast) -> dict[str, Any]:
    from holdfast.agents.approvals import requests
    from holdfast.clock import iso
    from holdfast.gateway.tokens import listing
    from holdfast.log import agenda, chains
    from holdfast.log.upkeep import stats
    from holdfast.runtime import chain_view

    with hold.store.read(OWNER) as tx:
        figures = stats(tx)
        live = [token for token in listing(tx) if token.revoked_at is None]
        waiting = len(requests.listing(tx, status=requests.ApprovalStatus.PENDING, limit=requests.MAX_PAGE))
        halt = agenda.halted(tx)
        listed = chain_view.listing(tx, hold.settings, live=True, limit=MOST_CHAINS)
        alive = len(chains.all_live(tx))
    return {
        "halted": None if halt is None else {"since": iso(halt.since), "reason": halt.reason},
        "store": {
            "engine": "postgresql" if hold.store.postgres else "sqlite",
            "url": hold.store.url.render_as_string(hide_password=True),
            "bytes": figures.size,
            "clockSkewMs": hold.store.skew_ms,
        },
        "log": {"head": figures.head},
        "sessions": figures.sessions,
        "turns": figures.turns,
        "agenda": figures.agenda,
        "tokens": len(live),
        "agents": [agent.id for agent in hold.settings.agent_list],
        "model": _model(hold),
        "runningTurns": figures.turns.get("running", 0),
        "approvalsWaiting": waiting,
        "chains": {"live": alive, "listed": listed, "asOf": iso(hold.clock.now())},
        "tokenEstimates": _estimates(hold),
        "modelLessons": _lessons(hold),
        "contextEngine": hold.settings.plugins.engine,
        "plugins": _plugins(hold),
        "engines": hold.context.engine_health(),
        "memoryBackend": hold.settings.memory.backend,
        "cutFiles": [words for agent in hold.settings.agent_list for words in _cut_files(hold, agent.id)],
    }


def _plugins(hold: Holdfast) -> list[dict[str, Any]]:
    """Those that are found; nothing of them is run for this."""
    return [one.json() for one in hold.plugins.find()]


def _plugin_words(plugins: list[dict[str, Any]]) -> str:
    well = ("validated", "registered", "initialised", "running")
    said = [one["id"] if one["state"] in well else f"{one['id']} ({one['state']})" for one in plugins]
    return ", ".join(said) or "none"


def _cut_files(hold: Holdfast, agent_id: str) -> list[str]:
    from holdfast.cli.workspaces import cut_files

    return [f"{agent_id}: {words}" for words in cut_files(hold.home, hold.settings, agent_id)]


def _estimates(hold: Holdfast) -> dict[str, Any]:
    """By model, how far the estimates of tokens were off what the provider reported."""
    from holdfast.context import calibration

    with hold.store.read(OWNER) as tx:
        found = calibration.listing(tx, limit=10)
    return {name: {"error": round(one.error, 4), "samples": one.samples} for name, one in found.items()}


def _lessons(hold: Holdfast) -> list[str]:
    """What models' servers taught by refusing a request, with when and why."""
    import asyncio

    from holdfast.agents.models import Models, StoredLessons

    models = Models(hold.home, lambda: hold.settings, hold.clock, lessons=StoredLessons(hold.store))
    return [str(one) for one in asyncio.run(models.learned())]


def _model(hold: Holdfast) -> str:
    """Who would answer for the default agent; servers on this machine are asked, nobody else."""
    import asyncio

    from holdfast.agents.models import Models
    from holdfast.errors import HoldfastError

    models = Models(hold.home, lambda: hold.settings, hold.clock)
    settings = hold.settings.agent(hold.settings.default_agent_id)
    try:
        if settings.model.primary is None:
            asyncio.run(models.discover())
        return str(models.choice(settings)[0])
    except HoldfastError as error:
        return f"none: {error.message}"


def _off(estimates: dict[str, Any]) -> str:
    told = [f"{name} {one['error']:.0%} off over {one['samples']} calls" for name, one in estimates.items()]
    return ", ".join(told) or "none yet"


def _print(body: dict[str, Any]) -> None:
    if body.get("halted"):
        click.secho(halted_line(body["halted"]), fg="red", bold=True)
    gateway = body["gateway"]
    running = f"running at {gateway['url']} (version {gateway['version']})"
    stopped = f"not running ({gateway.get('note', 'start it with `holdfast up`')})"
    fields: dict[str, object] = {
        "holdfast": body["version"],
        "home": body["home"],
        "gateway": running if gateway["running"] else stopped,
    }
    if "health" in body:
        fields["health"] = _health_line(body["health"])
    if "store" in body:
        store = body["store"]
        fields |= {
            "store": f"{store['engine']}, {size(store['bytes'])}{_skew(store['clockSkewMs'])}",
            "log": f"{body['log']['head']} entries",
            "sessions": _counts(body["sessions"]),
            "turns": _counts(body["turns"]),
            "agenda": _counts(body["agenda"]),
            "agents": ", ".join(body["agents"]),
            "model": body["model"],
            "running": _turns(body["runningTurns"]),
            "chains": chains_line(body["chains"]),
            "approvals": f"{body['approvalsWaiting']} waiting",
            "estimates": _off(body["tokenEstimates"]),
            "learned": "; ".join(body["modelLessons"]) or "nothing from refusals",
            "engine": _engine_line(body["contextEngine"], body["engines"]),
            "memory": body["memoryBackend"],
            "plugins": _plugin_words(body["plugins"]),
            "tokens": body["tokens"],
        }
        if body["cutFiles"]:
            fields["workspace"] = " ".join(body["cutFiles"])
    fields["config"] = "; ".join(body["configErrors"]) or "in order"
    print_fields(fields)


def _engine_line(used: str, engines: list[dict[str, Any]]) -> str:
    """The engine in use, whether it is there, and how it and those that are owed something fare."""
    said: list[str] = []
    for one in engines:
        name, queue = one["engine"], one["queue"]
        if name == used and not one["registered"]:
            said.append(f"{name} IS NOT THERE: every turn fails")
        elif name == used:
            said.append(name)
        if one["failures"] and (name == used or queue["waiting"]):
            said.append(f"{name} failed {one['failures']} of {one['calls']} calls, last: {one['lastError']}")
        if queue["waiting"]:
            said.append(f"{name} is still to hear of {queue['waiting']} turns")
    return "; ".join(said)


def _skew(ms: int) -> str:
    """Nothing where this machine's clock agrees with the store's."""
    return "" if abs(ms) <= JUMP_MS else f"; this machine's clock is {ms / 1000:+.1f} s off its own"


def _turns(count: int) -> str:
    return "no turns" if not count else f"{count} turn{'s' if count > 1 else ''}"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.items()) or "none"


def _lines(error: Exception) -> list[str]:
    problems = getattr(error, "problems", ())
    return [str(problem) for problem in problems] or [str(error)]
