"""Words as Slack writes them, both ways. Pure."""

from __future__ import annotations

import re
from html import unescape
from typing import Any, Final

from holdfast.channels import Message

MOST_SECTION: Final = 2_900

_BOLD: Final = re.compile(r"\*\*(?=\S)(.+?)(?<=\S)\*\*")
_HEADING: Final = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t]*#*$", re.MULTILINE)
_LINK: Final = re.compile(r"\[([^\]\n]+)\]\((https?://[^\s)]+)\)")
_CODE: Final = re.compile(r"(```.*?```|`[^`\n]+`)", re.DOTALL)
_REFERENCE: Final = re.compile(r"<([@#!]?)([^>|]+)(?:\|([^>]*))?>")
_SIGNS: Final = {
    "👍": "thumbsup",
    "👎": "thumbsdown",
    "🎉": "tada",
    "👀": "eyes",
    "✅": "white_check_mark",
    "❤️": "heart",
}
_NAMES: Final = {name: sign for sign, name in _SIGNS.items()} | {"+1": "👍", "-1": "👎"}


def slack_text(text: str) -> str:
    """Markdown in Slack's own marks; code stays as it is."""
    parts = _CODE.split(text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))
    return "".join(part if number % 2 else _marked(part) for number, part in enumerate(parts))


def asking(message: Message) -> list[dict[str, Any]] | None:
    """The blocks of a message that has buttons: its words, and the buttons in a row."""
    if not message.buttons:
        return None
    text = slack_text(message.text)
    parts = [text[at : at + MOST_SECTION] for at in range(0, len(text), MOST_SECTION)]
    words = [{"type": "section", "text": {"type": "mrkdwn", "text": part}} for part in parts]
    row = [
        {
            "type": "button",
            "action_id": one.value,
            "value": one.value,
            "text": {"type": "plain_text", "text": one.label},
        }
        for one in message.buttons
    ]
    return [*words, {"type": "actions", "elements": row}]


def plain(text: str) -> str:
    """What a person wrote, with links and names as words."""
    return unescape(_REFERENCE.sub(lambda m: m[3] or (f"{m[1]}{m[2]}" if m[1] else m[2]), text))


def sign_name(text: str) -> str:
    sign = text.strip()
    return _SIGNS.get(sign, sign.strip(":"))


def signed(name: str) -> str:
    return _NAMES.get(name, f":{name}:")


def _marked(text: str) -> str:
    text = _HEADING.sub(r"*\1*", text)
    text = _BOLD.sub(r"*\1*", text)
    return _LINK.sub(r"<\2|\1>", text)
