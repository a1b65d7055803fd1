"""A plugin as it is shown to its owner."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from holdfast.plugins.host import Plugin


def plugin_json(
    plugin: Plugin, engines: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
) -> dict[str, Any]:
    """For `GET /api/plugins`, `holdfast plugins list` and `status`; settings are not in it. `engines` is how
    engines fare, by their ids."""
    manifest = plugin.found.manifest
    own = [engines[id_] for id_ in plugin.registered.engines if id_ in engines]
    return {
        "id": plugin.id,
        "name": plugin.id if manifest is None else manifest.title,
        "version": None if manifest is None else manifest.version,
        "description": "" if manifest is None else manifest.description,
        "from": plugin.found.origin.label,
        "phase": plugin.phase.value,
        "state": state_of(plugin),
        "reason": plugin.reason or None,
        "capabilities": [] if manifest is None else list(manifest.capabilities),
        "slots": list(plugin.slots),
        "registered": plugin.registered.summary(),
        "troubles": [*plugin.troubles, *(_failing(one) for one in own if one["failures"])],
        "runnable": manifest is not None and not manifest.foreign,
    }


def _failing(engine: Mapping[str, Any]) -> str:
    """What the context room counted, over all processes and since ever."""
    waiting = engine["queue"]["waiting"]
    said = (
        f"{engine['failures']} of {engine['calls']} calls of its engine failed; {waiting} turns wait for it"
    )
    return f"{said}; the last: {engine['lastError']}"


def state_of(plugin: Plugin) -> str:
    """In a word: how far it is, that it failed, that it is off, or that parts of it fail."""
    if plugin.failed:
        return "failed"
    if not plugin.is_in:
        return "off"
    return "failing" if any(part.is_out for part in plugin.parts) else plugin.phase.value
