"""What a webhook brings, as an agent reads it: `{{path.to.field}}` stands for a field of the body. Pure."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from holdfast.text import clean_text, clip

MOST_FIELD: Final = 4_000
MOST_TEXT: Final = 32_000
_FIELD: Final = re.compile(r"\{\{\s*([\w.@$-]{1,200}|\.)\s*\}\}")


def rendered(template: str | None, body: Any) -> str:
    """The template with its fields filled in, once: what a field holds is never read as a template."""
    if template is None:
        return clip(clean_text(json.dumps(body, ensure_ascii=False, indent=2)), MOST_TEXT)
    filled = _FIELD.sub(lambda found: _shown(body, found[1]), template)
    return clip(clean_text(filled), MOST_TEXT)


def _shown(body: Any, path: str) -> str:
    value = body if path == "." else _at(body, path.split("."))
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return clip(text, MOST_FIELD)


def _at(value: Any, steps: list[str]) -> Any:
    for step in steps:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isascii() and step.isdecimal() and len(step) < 10:
            value = value[int(step)] if int(step) < len(value) else None
        else:
            return None
    return value
