"""What the doctor looks at in plugins. `doctor` runs nothing of them; `plugins doctor` loads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from holdfast.cli.findings import Finding, Patient
from holdfast.cli.workspaces import workspace_of

if TYPE_CHECKING:
    from holdfast.agents.skills import SkillRoom
    from holdfast.config import Config
    from holdfast.home import Home
    from holdfast.plugins import Plugin, PluginHost
    from holdfast.plugins.manifest import Capability, Slot

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
