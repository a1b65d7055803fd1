"""A plugin as it is shown to its owner."""

from __future__ import annotations

from typing import Any

from holdfast.plugins.host import Plugin


def plugin_json(plugin: Plugin) -> dict[str, Any]:
    """For `GET /api/plugins`, `holdfast plugins list` and `status`; settings are not in it."""
    manifest = plugin.found.manifest
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
        "troubles": plugin.troubles,
        "runnable": manifest is not None and not manifest.foreign,
    }


def state_of(plugin: Plugin) -> str:
    """In a word: how far it is, that it failed, that it is off, or that parts of it fail."""
    if plugin.failed:
        return "failed"
    if not plugin.is_in:
        return "off"
    return "failing" if any(part.is_out for part in plugin.parts) else plugin.phase.value
