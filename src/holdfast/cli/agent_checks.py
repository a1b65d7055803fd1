"""What the doctor looks at in models, plugins, tools and skills."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from holdfast.cli.commands.doctor import Finding, Patient
from holdfast.cli.workspaces import workspace_of
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.agents.skills import SkillRoom
    from holdfast.config import Config
    from holdfast.home import Home
    from holdfast.plugins import Plugin, PluginHost
    from holdfast.plugins.manifest import Capability, Slot


ROOMY_WINDOW: Final = 8_192
SMALLEST_WINDOW: Final = 2_048

if TYPE_CHECKING:
    from holdfast.agents.models import ModelRef, Models, Row
    from holdfast.config import Config
    from holdfast.home import Home


def check_models(patient: Patient) -> Iterator[Finding]:
    """Credentials are named and never shown; nobody but servers on this machine is asked."""
    from holdfast.agents.models import Models
    from holdfast.clock import SystemClock

    config = patient.config
    if config is None:
        yield Finding("warn", "models were not looked at: the config cannot be used", "See `config` above.")
        return
    models = Models(patient.home, lambda: config, SystemClock())
    rows = asyncio.run(_report(models))
    yield from (Finding("ok", f"{row.provider}: {row.text}") for row in rows)
    yield from _logins(models, config)
    for agent in config.agent_list:
        yield from _answering(models, config, agent.id)
        yield from _windows(models, patient.home, config, agent.id)
    yield from _learned(patient)


def _learned(patient: Patient) -> Iterator[Finding]:
    """What servers taught by refusing a request, where it takes something from what a model may do."""
    from sqlalchemy.exc import SQLAlchemyError

    from holdfast.agents.models import StoredLessons
    from holdfast.agents.models.lessons import KEPT_MS
    from holdfast.cli.checks import store_of
    from holdfast.clock import SystemClock

    try:
        with store_of(patient) as store:
            found = [] if store is None else StoredLessons(store).load()
    except (HoldfastError, SQLAlchemyError):  # `store` above tells of it
        return
    kept = SystemClock().now() - KEPT_MS
    yield from (Finding("ok", str(one)) for one in found if one.lesson.limits and one.at >= kept)


def _logins(models: Models, config: Config) -> Iterator[Finding]:
    """Nobody is asked: what is known of each login says whether it can still be used."""
    from holdfast.clock import SystemClock

    now = SystemClock().now()
    for provider, settings in config.models.providers.items():
        for login in models.credentials.logins.listing(provider) if settings.oauth is not None else ():
            profile = login.id.removeprefix(f"{provider}:")
            mend = f"Run `holdfast login {provider} --profile {profile}`."
            if login.refused:
                yield Finding("fail", f"{login.id}: the login is over, its refresh token was refused", mend)
            elif login.over(now):
                yield Finding("fail", f"{login.id}: the login has expired", mend)
            else:
                yield Finding("ok", f"{login.id}: logged in")


async def _report(models: Models) -> list[Row]:
    try:
        return await models.report()
    finally:
        await models.aclose()


def _answering(models: Models, config: Config, agent_id: str) -> Iterator[Finding]:
    """Whether the models of an agent can be asked: all that it names, since each may be called upon."""
    from holdfast.agents.models import RECALL

    try:
        refs = models.choice(config.agent(agent_id))
    except HoldfastError as error:
        yield Finding("fail", f"agent {agent_id}: {error.message}", error.hint or "Correct its model.")
        return
    if refs == [RECALL]:
        mend = "Set ANTHROPIC_API_KEY, OPENAI_API_KEY or the like, or start Ollama, LM Studio or llama.cpp."
        yield Finding("warn", f"agent {agent_id} has no model: {RECALL} answers from memory alone", mend)
        return
    problems = [found for ref in refs if (found := _problem(models, ref, agent_id)) is not None]
    yield from problems
    if not problems:
        yield Finding("ok", f"agent {agent_id} asks {', then '.join(map(str, refs))}")


def _windows(models: Models, home: Home, config: Config, agent_id: str) -> Iterator[Finding]:
    """Models whose windows are small for what every prompt of an agent holds, and how they are shared."""
    from holdfast.cli.workspaces import fitted_files
    from holdfast.context import Budgets

    settings = config.agent(agent_id)
    mend = (
        f"Use a model with {ROOMY_WINDOW:,} tokens or more, or start its server with a larger context "
        "(llama.cpp: -c, Ollama: num_ctx)."
    )
    for ref in models.choice(settings):
        try:
            about = models.about(ref)
        except HoldfastError:  # told of above
            continue
        window = min(settings.context_tokens or about.window, about.window)
        shares = Budgets.for_window(window, settings.compaction)
        if window < SMALLEST_WINDOW:
            said = f"agent {agent_id}: the window of {about.ref} has {window:,} tokens, too few for a prompt"
            yield Finding("fail", said, mend)
        elif window < ROOMY_WINDOW:
            files = fitted_files(home, config, agent_id, window)
            cut = sum(file.chars - len(file.text) for file in files)
            told = f", {cut:,} characters of the workspace files are cut" if cut > 0 else ""
            what = f"{shares.tools:,} for tools" if shares.tools else "no room for tools"
            said = (
                f"agent {agent_id}: the window of {about.ref} has {window:,} tokens: {shares.reserve:,} for "
                f"the answer, {what}, at least {shares.history:,} for instructions and conversation{told}"
            )
            yield Finding("warn", said, mend)


def _problem(models: Models, ref: ModelRef, agent_id: str) -> Finding | None:

    try:
        models.credentials_for(models.resolve(ref), agent_id)
    except HoldfastError as error:
        mend = error.hint or "Correct agents.defaults.model."
        return Finding("fail", f"agent {agent_id} cannot ask {ref}: {error.message}", mend)
    return None


# What becomes of a slot whose plugin is not there.
_WITHOUT: Final[dict[Slot, str]] = {
    "memory": "the built-in index serves",
    "sandbox": "no sandboxed session runs commands",
    "browser": "agents have no browser",
}


def check_plugins(patient: Patient) -> Iterator[Finding]:
    """As far as can be told without running them; a running gateway is asked how they fare."""
    if patient.config is not None:
        yield from findings(patient.home, patient.config, load=False)
        yield from _in_gateway(patient)


def findings(home: Home, config: Config, *, load: bool) -> Iterator[Finding]:
    from holdfast.plugins.installing import is_changed, record

    host = _host(home, config)
    found = host.load() if load else host.find()
    for plugin in found:
        yield from _of_one(plugin)
    for hidden in host.hidden:
        said = f"{hidden.id} in {hidden.folder} lies below another of that id, and is not used"
        yield Finding("warn", said, "Take one of them away.")
    for known in record(home).values():
        if is_changed(home, known):
            said = f"the files of {known.id} are not those that were installed"
            yield Finding("warn", said, f"Look at {home.plugins / known.id}, or install it again.")
    yield from _entries_without_plugin(config, {plugin.id for plugin in found} | set(host.engines))
    yield from _slots_without_holder(config, found)
    if load:
        yield from _slot_without_engine(config, set(host.engines))
        host.stop()
    if not found:
        yield Finding("ok", "there are no plugins")


def may_bring(home: Home, config: Config, what: Capability) -> list[str]:
    """The plugins that are let in and declare that they bring such a part."""
    manifests = [one.found.manifest for one in _host(home, config).find() if one.is_in]
    return [one.id for one in manifests if one is not None and what in one.capabilities]


def skills_of(home: Home, config: Config) -> SkillRoom:
    """The skills of a home, with those that plugins name in their manifests. What only their code registers
    is not among them: nothing is run for this."""
    from holdfast.agents.skills import SkillRoom

    folders = [path for one in _host(home, config).find() if one.is_in for path in one.found.skill_folders]
    return SkillRoom(home, lambda: config, lambda id_: workspace_of(home, config, id_), lambda: folders)


def slot_holder(home: Home, config: Config, slot: Slot) -> str | None:
    """The plugin that fills a slot, as far as can be told without running it."""
    return next((one.id for one in _host(home, config).find() if one.is_in and slot in one.slots), None)


def _host(home: Home, config: Config) -> PluginHost:
    from holdfast.plugins import PluginHost

    places = [workspace_of(home, config, agent.id) for agent in config.agent_list]
    return PluginHost(home, lambda: config, lambda: list(dict.fromkeys(places)))


def _of_one(plugin: Plugin) -> Iterator[Finding]:
    manifest = plugin.found.manifest
    if plugin.failed:
        yield Finding("fail", f"{plugin.id}: {plugin.reason}", f"Mend or disable it ({plugin.found.folder}).")
    elif not plugin.is_in:
        yield Finding("ok", f"{plugin.id} is off: {plugin.reason}")
    elif manifest is not None and manifest.foreign:
        said = f"{plugin.id} is of OpenClaw: its skills are used, its code cannot run here"
        yield Finding("warn", said, "See docs/plugins.md for what a plugin of Holdfast looks like.")
    else:
        yield Finding(
            "ok", f"{plugin.id} {manifest.version if manifest else ''} ({plugin.found.origin.label})"
        )
    for trouble in plugin.troubles if plugin.is_in else ():
        yield Finding("warn", f"{plugin.id}: {trouble}", "See docs/plugins.md.")


def _entries_without_plugin(config: Config, known: set[str]) -> Iterator[Finding]:
    for name in sorted(config.plugins.entries.keys() - known):
        said = f"plugins.entries.{name} is for a plugin that is not there"
        yield Finding("warn", said, "Install it, or take the key out.")


def _slots_without_holder(config: Config, found: Sequence[Plugin]) -> Iterator[Finding]:
    """A name in a slot that is no plugin's, or of one that fills no such slot."""
    from holdfast.plugins.host import BUILTIN

    ids = {plugin.id for plugin in found}
    for slot, instead in _WITHOUT.items():
        chosen = config.plugins.slots.chosen(slot)
        held = any(plugin.id == chosen and plugin.is_in and slot in plugin.slots for plugin in found)
        if chosen not in (None, BUILTIN) and not held:
            why = "which does not fill it" if chosen in ids else "which is no plugin"
            said = f"plugins.slots.{slot} names {chosen!r}, {why}: {instead}"
            yield Finding("fail", said, "Install or mend it, or take the key out.")


def _slot_without_engine(config: Config, engines: set[str]) -> Iterator[Finding]:
    name = config.plugins.engine
    if name not in engines:
        said = f"plugins.slots.contextEngine names {name!r}, which is no engine: every turn will fail"
        yield Finding("fail", said, f"Name one of {', '.join(sorted(engines))}.")


def _in_gateway(patient: Patient) -> Iterator[Finding]:
    """What a running gateway says of plugins that failed, and of parts that do."""
    from holdfast.cli.client import Client, find_gateway
    from holdfast.errors import HoldfastError

    seen = find_gateway(patient.home, patient.config)
    if seen.state != "ours":
        return
    try:
        told = Client(seen.url, patient.home.admin_token()).get("/api/plugins")
    except HoldfastError:
        return
    for plugin in told if isinstance(told, list) else ():
        if plugin["state"] == "failed":
            yield Finding("fail", f"{plugin['id']} failed in the gateway: {plugin['reason']}", "Mend it.")
        for trouble in plugin["troubles"] if plugin["state"] not in ("failed", "off") else ():
            yield Finding("warn", f"{plugin['id']} in the gateway: {trouble}", "See its log.")


_MOST_FILES: Final = 10
_MOST_IDENTITY: Final = 256 * 1024


def check_tools(patient: Patient) -> Iterator[Finding]:
    """A misspelt name in a deny list forbids nothing, and nobody would notice."""
    config = patient.config
    if config is None:
        yield Finding("warn", "tools were not looked at: the config cannot be used", "See `config` above.")
        return
    found = [*_unknown(patient, config), *_sandboxes(patient, config)]
    yield from found
    if not found:
        yield Finding("ok", "every name in the tool policy is a tool's")


def _unknown(patient: Patient, config: Config) -> Iterator[Finding]:
    from holdfast.agents.policy import policy_of, unknown_names

    every = [one for agent in config.agent_list for one in unknown_names(policy_of(config, agent.id))]
    plugins = ", ".join(may_bring(patient.home, config, "tools")) if every else ""
    unless = f"Correct it, unless it is a tool of a plugin's ({plugins}: see `holdfast plugins doctor`)."
    mend = unless if plugins else "Correct it; until then it allows and forbids nothing."
    for place, name in dict.fromkeys((one.place, one.name) for one in every):
        yield Finding("warn", f"{place} names {name!r}, which is no tool and no group", mend)


def _sandboxes(patient: Patient, config: Config) -> Iterator[Finding]:
    from holdfast.agents.sandbox import backend_of
    from holdfast.errors import Unavailable

    for agent in config.agent_list:
        sandbox = config.agent(agent.id).sandbox
        if sandbox.mode == "off":
            continue
        plugin = slot_holder(patient.home, config, "sandbox")
        if plugin is not None:
            yield Finding("ok", f"agent {agent.id}: sandboxed by plugin {plugin}")
            continue
        try:
            backend = backend_of(sandbox)
        except Unavailable as error:
            yield Finding("fail", f"agent {agent.id}: {error.message}", error.hint)
        else:
            yield Finding("ok", f"agent {agent.id}: sandboxed by {backend.name}")


def check_skills(patient: Patient) -> Iterator[Finding]:
    """A skill that cannot be read is one that an agent does not have, and nobody would notice."""
    config = patient.config
    if config is None:
        return
    broken = [one for agent in config.agent_list for one in _broken_files(patient, config, agent.id)]
    for path, (reason, hint) in list(dict(broken).items())[:_MOST_FILES]:
        yield Finding("warn", f"{path}: {reason}", hint or "Correct it; see `holdfast skills check`.")
    more = len(dict(broken)) - _MOST_FILES
    if more > 0:
        yield Finding("warn", f"{more} more cannot be read", "See `holdfast skills check`.")
    if not broken:
        yield Finding("ok", "every skill and identity can be read")


def _broken_files(patient: Patient, config: Config, agent_id: str) -> Iterator[tuple[str, tuple[str, str]]]:
    from holdfast.cli.workspaces import workspace_of
    from holdfast.frontmatter import BadFrontmatter, read_frontmatter

    for one in skills_of(patient.home, config).found(agent_id).broken:
        yield str(one.path), (one.reason, one.hint)
    identity = workspace_of(patient.home, config, agent_id) / "IDENTITY.md"
    text = identity.read_text("utf-8", "replace")[:_MOST_IDENTITY] if identity.is_file() else ""
    if text.lstrip("\ufeff").startswith("---"):
        try:
            read_frontmatter(text)
        except BadFrontmatter as error:
            yield str(identity), (error.message, error.hint)
