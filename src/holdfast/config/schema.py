"""The JSON Schema of the config file, for editors and the page."""

from __future__ import annotations

from typing import Any

from holdfast.config.root import SHORTCUTS, Config


def config_schema() -> dict[str, Any]:
    """JSON Schema of what `load_config` takes, the top-level shortcuts included."""
    schema = Config.model_json_schema(by_alias=True)
    defaults = schema["$defs"]["AgentDefaults"]["properties"]
    for name in SHORTCUTS:
        schema["properties"][name] = defaults[name] | {
            "description": f"Shortcut for `agents.defaults.{name}`."
        }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
