"""What must not get lost when text is summarised: exact names, figures, open asks, decisions, file work.

Found by pattern in the source, checked against the summary, and what the summary lacks is listed behind it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from holdfast.context.messages import AssistantMessage, Message, ToolResult, UserMessage
from holdfast.context.tokens import raw_tokens

Keeps: TypeAlias = Mapping[str, Sequence[str]]

ASK, DECISION, FILE, NAME, FIGURE = "asks", "decisions", "files", "names", "figures"
KINDS: Final = (ASK, DECISION, FILE, NAME, FIGURE)
MOST: Final = 2_000
_MOST_PER_RESULT: Final = 60
_LONGEST: Final = 240

_NAMES: Final = re.compile(
    r"https?://[^\s\"'<>)\]]+"
    r"|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"
    r"|(?<![\w/.])(?:~|\.{1,2})?/?(?:[\w.@+-]+/)+[\w.@+-]*\w"
    r"|(?<![\w/])[\w-]+\.(?:py|js|ts|tsx|md|json|ya?ml|toml|sql|sh|rs|go|java|c|h|cpp|txt|csv|html|css|cfg|ini|lock)\b"
    r"|\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b"
    r"|\b[A-Z]{2,}-\d+\b"
    r"|(?<!\w)#\d{2,}\b"
    r"|\bv?\d+\.\d+\.\d+(?:[-+][\w.]+)?\b"
    r"|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,64}\b"
    r"|\b[\w.+-]+@[\w-]+\.[\w.]+\b"
)
_PATH: Final = re.compile(r"^(?!https?:).*(?:/|\.[a-z]{1,5}$)")
_UNITS: Final = (
    "ms|s|sec|seconds?|min|minutes?|h|hours?|days?|weeks?|months?|years?|B|kB|KB|MB|GB|TB|KiB|MiB|GiB|bytes"
    "|px|mm|cm|m|km|kg|g|Hz|kHz|MHz|GHz|W|kW|°C|°F|tokens?|rows?|users?|requests?|rpm|rps|USD|EUR|GBP|percent"
)
_FIGURES: Final = re.compile(rf"[$€£]\s?\d[\d.,]*\d?|\b\d[\d.,]*(?:\s?%|\s?(?:{_UNITS})\b)")
_SENTENCE: Final = re.compile(r"\S[^\n]*?(?:[.!?]+(?=\s|$)|[。！？]+|(?=\n)|$)")
_ASKS: Final = re.compile(
    r"\b(?:todo|fixme|pending|remind me|remember to|don'?t forget|follow up|still (?:need|have) to|please|"
    r"waiting (?:for|on)|open question|unresolved|next step|let me know|can you|could you|would you"
    r"|i need you|make sure|blocked (?:on|by)|by (?:monday|tuesday|wednesday|thursday|friday|tomorrow))\b",
    re.IGNORECASE,
)
_DECISIONS: Final = re.compile(
    r"\b(?:decided|decision|agreed|we(?:'ll| will| shall) (?:use|go|keep|drop)|let'?s (?:use|go with|keep)|"
    r"chose|chosen|settled on|instead of|from now on|must (?:not|never|always)|rejected|approved)\b",
    re.IGNORECASE,
)
_FILE_WORK: Final = re.compile(
    r"\b(creat|edit|delet|remov|renam|mov|writ|wrote|written|updat|add|modif|patch)\w*\s+"
    r"(?:the\s+)?(?:file\s+)?[`'\"]?(~?\.{0,2}/?(?:[\w.@+-]+/)*[\w@+-]+\.\w{1,8})",
    re.IGNORECASE,
)
_WRITERS: Final = ("write", "edit", "delete", "patch", "create", "move", "rename", "remove")
_PATH_KEYS: Final = ("path", "file", "file_path", "filePath", "filename", "target")


def keeps_of(messages: Sequence[Message]) -> Keeps:
    """All that the audit finds in messages; people's words first, then the agent's, then tool results."""
    found: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    read: Counter[str] = Counter()
    last = next((m for m in reversed(messages) if isinstance(m, UserMessage)), None)
    for message in sorted(messages, key=_rank):
        if isinstance(message, ToolResult):
            read.update(_few(_names(message.text)))
            continue
        found[NAME].update(_names(message.text))
        found[FIGURE].update(_clean(_FIGURES.findall(message.text)))
        _sentences(message, found, is_last=message is last)
        found[FILE].update(_file_work(message))
    kept = {kind: list(counts) for kind, counts in found.items()}
    kept[NAME] += [word for word in _by_weight(read) if word not in found[NAME]]
    return _bounded(kept)


def merged(many: Iterable[Keeps]) -> Keeps:
    """What nodes keep together, each once, the newest first where there is too much."""
    found: dict[str, dict[str, None]] = {kind: {} for kind in KINDS}
    for keeps in reversed(list(many)):
        for kind in KINDS:
            found[kind].update(dict.fromkeys(keeps.get(kind, ())))
    return _bounded({kind: list(words) for kind, words in found.items()})


def missing(text: str, keeps: Keeps) -> Keeps:
    """What of it the text does not say."""
    return {kind: [word for word in keeps.get(kind, ()) if word not in text] for kind in KINDS}


def listed(lacking: Keeps, *, most_tokens: int) -> str:
    """The list that is put behind a summary: in a fixed order, as far as there is room."""
    lines: list[str] = []
    left_out = 0
    share = {ASK: 0.3, DECISION: 0.55, FILE: 0.7, NAME: 0.92, FIGURE: 1.0}
    used = 0
    for kind in KINDS:
        room = int(most_tokens * share[kind]) - used
        chosen, cost = _fitting(lacking.get(kind, ()), room)
        used += cost
        left_out += len(lacking.get(kind, ())) - len(chosen)
        if chosen:
            joint = "\n  - " if kind in (ASK, DECISION) else ", "
            lead = joint if kind in (ASK, DECISION) else " "
            lines.append(f"{_TITLES[kind]}:{lead}{joint.join(chosen)}")
    if left_out:
        lines.append(f"({left_out} more: context_search finds them)")
    return "\n".join(lines)


_TITLES: Final = {
    ASK: "Asked",
    DECISION: "Decided",
    FILE: "Files",
    NAME: "Names",
    FIGURE: "Figures",
}
TITLES: Final = tuple(_TITLES.values())


def _fitting(words: Sequence[str], room: int) -> tuple[list[str], int]:
    chosen: list[str] = []
    cost = 0
    for word in words:
        tokens = raw_tokens(word) + 1
        if cost + tokens > room:
            continue
        chosen.append(word)
        cost += tokens
    return chosen, cost


def _rank(message: Message) -> int:
    if isinstance(message, UserMessage):
        return 0
    return 2 if isinstance(message, ToolResult) else 1


def _names(text: str) -> list[str]:
    return [word for word in _clean(_NAMES.findall(text)) if len(word) > 3]


def _few(words: Sequence[str]) -> list[str]:
    return _by_weight(Counter(words))[:_MOST_PER_RESULT]


def _by_weight(counts: Counter[str]) -> list[str]:
    """Names that mean one thing (settings, tickets, hashes) before paths, which listings are full of."""
    return sorted(counts, key=lambda word: (bool(_PATH.search(word)), -counts[word]))


def _clean(words: Iterable[str]) -> list[str]:
    return [word.rstrip(".,;:") for word in words if len(word) <= _LONGEST]


def _sentences(message: Message, found: dict[str, Counter[str]], *, is_last: bool) -> None:
    """Sentences that ask or decide; of questions only those that nobody has answered yet."""
    asked = isinstance(message, UserMessage)
    for sentence in _SENTENCE.findall(message.text):
        flat = " ".join(sentence.split())
        if not 8 <= len(flat) <= _LONGEST:
            continue
        if _DECISIONS.search(flat):
            found[DECISION][flat] += 1
        elif _ASKS.search(flat) or (asked and is_last and flat.endswith(("?", "？"))):
            found[ASK][flat] += 1


def _file_work(message: Message) -> list[str]:
    found = [f"{m[1].lower()}: {m[2]}" for m in _FILE_WORK.finditer(message.text)]
    found = [_said(line) for line in found]
    if isinstance(message, AssistantMessage):
        for call in message.calls:
            path = next((call.arguments[k] for k in _PATH_KEYS if isinstance(call.arguments.get(k), str)), "")
            if path and any(word in call.name.lower() for word in _WRITERS):
                found.append(f"{call.name} {path}"[:_LONGEST])
            elif not path:
                found += _clean(_NAMES.findall(json.dumps(call.arguments, ensure_ascii=False)))[:8]
    return found


_VERBS: Final = {
    "creat": "created",
    "edit": "edited",
    "delet": "deleted",
    "remov": "removed",
    "renam": "renamed",
    "mov": "moved",
    "writ": "wrote",
    "wrote": "wrote",
    "written": "wrote",
    "updat": "updated",
    "add": "added",
    "modif": "modified",
    "patch": "patched",
}


def _said(line: str) -> str:
    verb, _, path = line.partition(": ")
    return f"{_VERBS[verb]} {path}"


def _bounded(found: Mapping[str, list[str]]) -> Keeps:
    room = MOST
    kept: dict[str, list[str]] = {}
    for kind in KINDS:
        kept[kind] = found.get(kind, [])[:room]
        room -= len(kept[kind])
    return kept
