"""Reading what a model sent as arguments; what is wrong with them is said so that it can mend them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from holdfast.agents.tools.types import Input, Tool
from holdfast.errors import InvalidInput
from holdfast.text import clip

MALFORMED: Final = "__invalid__"
_MOST_FAULTS: Final = 5
_QUOTED: Final = 400


def checked(tool: Tool[Input], arguments: Mapping[str, Any]) -> Input:
    """The arguments as the tool takes them; `InvalidInput` names each path and what was expected there."""
    if MALFORMED in arguments:
        sent = clip(str(arguments[MALFORMED]), _QUOTED)
        raise InvalidInput(
            f"the arguments of {tool.name} were not valid JSON: {sent}",
            code="malformed_arguments",
            hint="Send one JSON object, strings quoted and escaped.",
        )
    try:
        return tool.input.model_validate(dict(arguments))
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=True)
        told = "; ".join(_told(fault) for fault in faults[:_MOST_FAULTS])
        raise InvalidInput(
            f"{tool.name}: {told}", code="invalid_arguments", hint=_expected(tool.input.model_json_schema())
        ) from error


def _told(fault: Mapping[str, Any]) -> str:
    where = ".".join(map(str, fault["loc"])) or "the arguments"
    given = fault.get("input")
    shown = (
        f", not {clip(json.dumps(given, default=str), 60)}" if isinstance(given, str | int | float) else ""
    )
    return f"{where}: {fault['msg']}{shown}"


def _expected(schema: Mapping[str, Any]) -> str:
    """The tool's arguments in a line; a star marks those that must be there."""
    needed = set(schema.get("required", ()))
    names = [f"{name}{'*' if name in needed else ''}" for name in schema.get("properties", {})]
    return f"It takes: {', '.join(names)} (* required)."
