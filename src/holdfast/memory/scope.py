"""Which chats may search memory: the first rule that matches decides, else the default, which is to deny."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.config.memory import Scope, ScopeMatch
from holdfast.keys import ParsedKey, parse_key


@dataclass(frozen=True, slots=True)
class Chat:
    """The chat that asks. Someone at the command line or the API, who is in no chat, asks in private."""

    key: str | None = None
    chat_type: str = "direct"
    channel: str | None = None

    @classmethod
    def of(cls, session_key: str | None, chat_type: str | None = None) -> Chat:
        if session_key is None:
            return cls()
        parsed: ParsedKey = parse_key(session_key)
        return cls(session_key, chat_type or parsed.chat_type or "unknown", parsed.channel)

    @property
    def private(self) -> bool:
        return self.chat_type == "direct"


PRIVATE: Final = Chat()


@dataclass(frozen=True, slots=True)
class Verdict:
    allowed: bool
    why: str


def may_search(chat: Chat, scope: Scope) -> Verdict:
    for number, rule in enumerate(scope.rules):
        if _matches(rule.match, chat):
            return Verdict(rule.action == "allow", f"rule {number + 1} of the scope: {rule.action}")
    return Verdict(scope.default == "allow", f"no rule of the scope matches: {scope.default}")


def shows_citations(mode: str, chat: Chat) -> bool:
    """`auto` shows where something stands only where nobody else reads along."""
    return mode == "on" or (mode == "auto" and chat.private)


def _matches(match: ScopeMatch, chat: Chat) -> bool:
    return (
        (match.chat_type is None or match.chat_type == chat.chat_type)
        and (match.channel is None or match.channel == chat.channel)
        and (match.key_prefix is None or (chat.key or "").startswith(match.key_prefix))
    )
