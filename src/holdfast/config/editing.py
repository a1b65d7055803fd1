"""Changing a JSON5 text without touching what is not changed: comments, layout and the order of keys stay.

No registry package does this for JSON5: parsers give plain data, without the places where values stand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.config.section import Section, merge_patch
from holdfast.config.values import MASK, Secret, wrap_secrets

_SKIPPED: Final = re.compile(r"(?:[\s\ufeff]|//[^\n\r\u2028\u2029]*|/\*.*?\*/)*", re.S)
_STRING: Final = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'", re.S)
_BARE: Final = re.compile(r"[^\s,:{}\[\]\"'/]+")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_$][\w$]*", re.ASCII)
_REST_OF_LINE: Final = re.compile(r"[ \t]*(?://[^\n]*|/\*[^\n]*?\*/[ \t]*)?(?=\n)")
_STEP: Final = "  "


def merge_text(text: str, patch: dict[str, Any]) -> str:
    """JSON5 text of an object with a merge patch (RFC 7396) in it; comments and the layout of all else stay.

    Plain JSON, which has no comments, is written anew. Agents may be given by their ids.
    """
    from holdfast.config.source import parse_text

    data = parse_text(text)
    if not isinstance(data, dict):
        raise ValueError("only an object can be patched")
    after = merge_patch(data, with_named_agents(data, patch))
    if not text.strip() or is_json(text):
        return _plain(after)
    merged = _edited(text, data, after)
    return merged if _same(parse_text(merged), after) else _plain(after)


def with_named_agents(data: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """A patch whose `agents.list` is an object has agents by their ids: each merges into the one of that id,
    or is a further one, and null takes it away. A merge patch alone could only write the whole list anew."""
    agents = patch.get("agents")
    named = agents.get("list") if isinstance(agents, dict) else None
    if not isinstance(agents, dict) or not isinstance(named, dict):
        return patch
    before = data.get("agents")
    there = before.get("list") if isinstance(before, dict) else None
    known = {one.get("id"): one for one in there or () if isinstance(one, dict)}
    after = [merge_patch(one, named.get(id_, {})) for id_, one in known.items()]
    after += [merge_patch({"id": id_}, given) for id_, given in named.items() if id_ not in known]
    return patch | {"agents": agents | {"list": [one for one in after if one is not None]}}


def _edited(text: str, before: dict[str, Any], after: dict[str, Any]) -> str:
    scanner = _Scanner(text)
    root = scanner.node(scanner.skip(0))
    quoted = any(text[member.start] == '"' for member in root.members.values())
    edits = list(_Changes(text, quoted=quoted).of_object(root, before, after))
    for edit in sorted(edits, key=lambda one: (one.start, one.end), reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def _plain(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@dataclass(slots=True)
class _Node:
    """Where a value stands, and where what it holds stands."""

    start: int
    end: int
    members: dict[str, _Member] = field(default_factory=dict)
    items: list[_Node] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Member:
    start: int
    value: _Node


@dataclass(frozen=True, slots=True)
class _Edit:
    start: int
    end: int
    text: str


class _Scanner:
    """Finds the places of values in a text that is known to be well formed."""

    def __init__(self, text: str) -> None:
        self._text = text

    def skip(self, at: int) -> int:
        found = _SKIPPED.match(self._text, at)
        return at if found is None else found.end()

    def node(self, at: int) -> _Node:
        match self._text[at]:
            case "{":
                return self._object(at)
            case "[":
                return self._array(at)
            case _:
                return _Node(at, self._scalar(at))

    def _scalar(self, at: int) -> int:
        found = _STRING.match(self._text, at) or _BARE.match(self._text, at)
        if found is None:
            raise ValueError(f"no value at {at}")
        return found.end()

    def _object(self, start: int) -> _Node:
        node, at = _Node(start, start), self.skip(start + 1)
        while self._text[at] != "}":
            end = self._scalar(at)
            value = self.node(self.skip(self.skip(end) + 1))
            node.members[_name(self._text[at:end])] = _Member(at, value)
            at = self._after(value.end)
        node.end = at + 1
        return node

    def _array(self, start: int) -> _Node:
        node, at = _Node(start, start), self.skip(start + 1)
        while self._text[at] != "]":
            node.items.append(self.node(at))
            at = self._after(node.items[-1].end)
        node.end = at + 1
        return node

    def _after(self, at: int) -> int:
        at = self.skip(at)
        return self.skip(at + 1) if self._text[at] == "," else at


def _name(written: str) -> str:
    if written[0] not in "\"'":
        return written
    if "\\" not in written:
        return written[1:-1]
    import json5

    return str(json5.loads(written))


class _Changes:
    """The edits that make one text's data another's."""

    def __init__(self, text: str, *, quoted: bool) -> None:
        self._text = text
        self._quoted = quoted

    def of_object(self, node: _Node, before: dict[str, Any], after: dict[str, Any]) -> Iterator[_Edit]:
        for name, member in node.members.items():
            if name in after:
                yield from self._of_value(member.value, before[name], after[name])
        fresh = [(f"{self._key(name)}: ", value) for name, value in after.items() if name not in before]
        gone = [member for name, member in node.members.items() if name not in after]
        last = list(node.members.values())[-1:]
        if fresh and gone[-1:] == last and last:
            yield self._instead(gone.pop(), fresh)
        elif fresh:
            yield self._added(node, [member.value for member in last], fresh)
        for member in gone:
            yield self._without(member.start, member.value.end)

    def _instead(self, member: _Member, fresh: Sequence[tuple[str, Any]]) -> _Edit:
        """New members in the place of the last one, which goes."""
        indent = self._indent(member.start)
        joint = f",\n{indent}" if self._starts_line(member.start) else ", "
        pieces = [name + self._written(value, indent) for name, value in fresh]
        return _Edit(member.start, member.value.end, joint.join(pieces))

    def _of_value(self, node: _Node, before: Any, after: Any) -> Iterator[_Edit]:
        if _same(before, after):
            return
        if isinstance(before, dict) and isinstance(after, dict):
            yield from self.of_object(node, before, after)
        elif isinstance(before, list) and isinstance(after, list):
            yield from self._of_list(node, before, after)
        else:
            yield _Edit(node.start, node.end, self._written(after, self._indent(node.start)))

    def _of_list(self, node: _Node, before: list[Any], after: list[Any]) -> Iterator[_Edit]:
        """What is equal at both ends stays as it is written; what lies between is changed one by one."""
        head = _common(before, after)
        tail = _common(before[head:][::-1], after[head:][::-1])
        old, new = before[head : len(before) - tail], after[head : len(after) - tail]
        nodes = node.items[head : len(before) - tail]
        for place, one, other in zip(nodes, old, new, strict=False):
            yield from self._of_value(place, one, other)
        for place in nodes[len(new) :]:
            yield self._without(place.start, place.end)
        added = new[len(old) :]
        if not added:
            return
        if tail:
            first = node.items[len(before) - tail]
            indent = self._indent(first.start)
            joint = f"\n{indent}" if self._starts_line(first.start) else " "
            pieces = "".join(f"{self._written(one, indent)},{joint}" for one in added)
            yield _Edit(first.start, first.start, pieces)
        else:
            yield self._added(node, node.items[-1:], [("", one) for one in added])

    def _added(self, node: _Node, last: Sequence[_Node], fresh: Sequence[tuple[str, Any]]) -> _Edit:
        """Further members or items at the end of an object or list, set as those before them are."""
        several = "\n" in self._text[node.start : node.end]
        outer = self._indent(node.start)
        indent = self._indent(last[0].start) if last and several else outer + _STEP
        pieces = [name + self._written(value, indent) for name, value in fresh]
        place, comma = self._end_of(node, last)
        separator = "," if last and not comma else ""
        if last and not several:
            return _Edit(place, place, f"{separator} {', '.join(pieces)}")
        lines = f"\n{indent}" + f",\n{indent}".join(pieces) + ","
        if not last and not several:
            return _Edit(node.start + 1, node.end - 1, self._opened(node, f"{lines}\n{outer}"))
        return self._on_lines(node, last, place, separator, lines)

    def _opened(self, node: _Node, lines: str) -> str:
        """An empty object or list on one line, with what stood in it (a comment) kept."""
        inside = self._text[node.start + 1 : node.end - 1].strip()
        return f" {inside}{lines}" if inside else lines

    def _on_lines(self, node: _Node, last: Sequence[_Node], place: int, separator: str, lines: str) -> _Edit:
        """After the last one's line and the comment at its end; in an empty one before the closing brace."""
        if not last:
            end = node.end - 1
            begin = len(self._text[:end].rstrip())
            return _Edit(begin, begin, lines)
        rest = _REST_OF_LINE.match(self._text, place)
        if rest is None:
            return _Edit(place, place, f"{separator}{lines}")
        return _Edit(place, rest.end(), f"{separator}{rest.group()}{lines}")

    def _end_of(self, node: _Node, last: Sequence[_Node]) -> tuple[int, bool]:
        """Where the last one ends, its comma with it, and whether there is one."""
        if not last:
            return node.start + 1, False
        at = _Scanner(self._text).skip(last[0].end)
        return (at + 1, True) if self._text[at] == "," else (last[0].end, False)

    def _without(self, start: int, end: int) -> _Edit:
        """Take one away with its comma, and its line if nothing else stands there."""
        at = _Scanner(self._text).skip(end)
        if self._text[at] == "," and self._text[end:at].strip() == "":
            end = at + 1
        elif self._text[at] == ",":
            return _Edit(start, at + 1, self._text[end:at])  # the comment before the comma stays
        line = self._text.rfind("\n", 0, start) + 1
        rest = _REST_OF_LINE.match(self._text, end)
        if self._text[line:start].strip() == "" and rest is not None and not rest.group().strip():
            return _Edit(line, rest.end() + 1, "")
        return _Edit(start, end, "")

    def _written(self, value: Any, indent: str) -> str:
        if not self._quoted:
            return _bare(value, indent)
        return json.dumps(value, indent=2, ensure_ascii=False).replace("\n", f"\n{indent}")

    def _key(self, name: str) -> str:
        bare = not self._quoted and _IDENTIFIER.fullmatch(name)
        return name if bare else json.dumps(name, ensure_ascii=False)

    def _indent(self, at: int) -> str:
        """The space with which the line of this place begins."""
        line = self._text.rfind("\n", 0, at) + 1
        found = re.match(r"[ \t]*", self._text[line:at])
        return found.group() if found else ""

    def _starts_line(self, at: int) -> bool:
        return self._text[self._text.rfind("\n", 0, at) + 1 : at].strip() == ""


def _bare(value: Any, indent: str) -> str:
    """A value as a person writes JSON5: keys bare, what fits on a line on one."""
    text = _flat(value)
    if len(text) + len(indent) <= 100 or not isinstance(value, (dict, list)):
        return text
    inner = indent + _STEP
    if isinstance(value, dict):
        rows = [f"{_bare_key(name)}: {_bare(item, inner)}" for name, item in value.items()]
        return "{\n" + "".join(f"{inner}{row},\n" for row in rows) + f"{indent}}}"
    return "[\n" + "".join(f"{inner}{_bare(item, inner)},\n" for item in value) + f"{indent}]"


def _flat(value: Any) -> str:
    match value:
        case dict() if value:
            return (
                "{ " + ", ".join(f"{_bare_key(name)}: {_flat(item)}" for name, item in value.items()) + " }"
            )
        case list() if value:
            return "[" + ", ".join(map(_flat, value)) + "]"
        case _:
            return json.dumps(value, ensure_ascii=False)


def _bare_key(name: str) -> str:
    return name if _IDENTIFIER.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _common(before: Sequence[Any], after: Sequence[Any]) -> int:
    """How many of the first are the same."""
    count = 0
    for one, other in zip(before, after, strict=False):
        if not _same(one, other):
            break
        count += 1
    return count


def _same(one: Any, other: Any) -> bool:
    """Equal, and of one type: 1 is not true, nor 1.0."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def masked(data: Any, secrets: tuple[Secret, ...]) -> Any:
    """Plain data with every string that is one of the secrets as it may be shown."""
    if isinstance(data, dict):
        return {name: masked(value, secrets) for name, value in data.items()}
    if isinstance(data, list):
        return [masked(value, secrets) for value in data]
    if isinstance(data, str):
        return next((one.public() for one in secrets if one.is_text(data)), data)
    return data


def restored(data: Any, before: Any) -> Any:
    """What was edited, with what is masked as it was at its place before; a mask elsewhere stays one."""
    if isinstance(data, dict):
        old = before if isinstance(before, dict) else {}
        return {name: restored(value, old.get(name)) for name, value in data.items()}
    if isinstance(data, list):
        olds = before if isinstance(before, list) and len(before) == len(data) else [None] * len(data)
        return [restored(value, old) for value, old in zip(data, olds, strict=True)]
    if isinstance(data, str) and MASK in data and isinstance(before, str):
        return before if data in (MASK, masked(before, tuple(secrets_in(before)))) else data
    return data


def secrets_in(value: Any) -> Iterator[Secret]:
    """Every secret within a config, or within plain data by the names of its keys."""
    if isinstance(value, Secret):
        yield value
    elif isinstance(value, Section):
        for name in type(value).model_fields:
            yield from secrets_in(getattr(value, name))
    elif isinstance(value, dict):
        for inner in value.values():
            yield from secrets_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from secrets_in(inner)
    elif isinstance(value, str) and isinstance(wrapped := wrap_secrets(value), Secret):
        yield wrapped


_TEXT = """\
/* Holdfast's settings, in JSON5. Every line that starts with // shows a default or an example;
   take the slashes away to change it. All keys: docs/configuration.md. The file is read again
   whenever it changes. */
{
  /* Models. A secret may be "${NAME}", taken from the environment where it is used. */
  // models: {
  //   providers: {
  //     openai: { api: "openai-responses", apiKey: "${OPENAI_API_KEY}" },
  //     anthropic: { api: "anthropic-messages", apiKey: "${ANTHROPIC_API_KEY}" },
  //     ollama: { api: "ollama", baseUrl: "http://127.0.0.1:11434" },
  //   },
  // },

  /* Agents. What is set in defaults holds for all; each may have its own. */
  // agents: {
  //   defaults: {
  //     model: { primary: "openai/gpt-5", fallbacks: ["ollama/qwen3"] },
  //     userTimezone: "local",
  //     heartbeat: { enabled: true, every: "30m", target: "last" },
  //     compaction: { enabled: true, reserveTokens: 16384, keepRecentTokens: 20000 },
  //     contextPruning: { mode: "cache-ttl", ttl: "5m" },
  //     continuation: { enabled: false, maxChainLength: 10, costCapTokens: 500000 },
  //     sandbox: { mode: "off", workspaceAccess: "none" },
  //   },
  //   list: [
  //     { id: "main", default: true },
  //     { id: "work", tools: { profile: "coding", alsoAllow: ["message"] } },
  //   ],
  // },

  /* Which agent a message goes to: peer, server, team, account, channel, else the default. */
  // bindings: [
  //   { agentId: "work", match: { channel: "slack", teamId: "T12345" } },
  // ],

  /* When a session starts afresh. */
  // session: { reset: { mode: "daily", atHour: 4 }, dmScope: "per-channel-peer" },

  /* Memory: the built-in index, or the qmd program. */
  // memory: { backend: "builtin", citations: "auto" },

  /* What agents may do. */
  // tools: { profile: "full", exec: { security: "allowlist", ask: "on-miss" } },

  /* Where people see messages. */
  // channels: {
  //   pier: { url: "https://pier.example/messages", signingSecret: "${PIER_SECRET}" },
  // },

  /* Which engine builds contexts: "legacy" or "lossless". */
  // plugins: { slots: { contextEngine: "legacy" } },

  /* Where the gateway listens, and where the log is kept. */
  // gateway: { host: "127.0.0.1", port: 8787 },
  // store: { url: "postgresql+psycopg://holdfast@localhost/holdfast" },
}
"""


def default_config_text() -> str:
    """A commented JSON5 file that loads as all defaults."""
    return _TEXT
