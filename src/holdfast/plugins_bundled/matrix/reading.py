"""What the content of a Matrix event says: its words, its thread, what it answers, whom it names. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def relation(content: Mapping[str, Any]) -> Mapping[str, Any]:
    found = content.get("m.relates_to")
    return found if isinstance(found, dict) else {}


def thread_of(content: Mapping[str, Any]) -> str | None:
    about = relation(content)
    return str(about["event_id"]) if about.get("rel_type") == "m.thread" and about.get("event_id") else None


def replied_to(content: Mapping[str, Any]) -> str | None:
    """The message that is answered; one that only stands in for old programs is none."""
    about = relation(content)
    answered = about.get("m.in_reply_to")
    if about.get("is_falling_back") or not isinstance(answered, dict):
        return None
    return str(answered.get("event_id") or "") or None


def words(content: Mapping[str, Any]) -> str:
    """The body, without the lines of the message before it that some programs quote at its beginning."""
    body = content.get("body")
    text = body if isinstance(body, str) else ""
    if replied_to(content) is not None and text.startswith("> "):
        lines = text.split("\n")
        while lines and lines[0].startswith(">"):
            lines.pop(0)
        text = "\n".join(lines).lstrip("\n")
    return text


def caption(content: Mapping[str, Any]) -> str:
    """What is said with a file: its body, where the file's name stands elsewhere."""
    name, body = content.get("filename"), content.get("body")
    return body if isinstance(body, str) and isinstance(name, str) and body != name else ""


def edited(content: Mapping[str, Any]) -> str:
    new = content.get("m.new_content")
    return words(new) if isinstance(new, dict) else ""


def mentions(content: Mapping[str, Any], user_id: str) -> bool:
    named = content.get("m.mentions")
    listed = named.get("user_ids") if isinstance(named, dict) else None
    body = str(content.get("body") or "")
    return (isinstance(listed, list) and user_id in listed) or user_id in body
