"""The YAML between two `---` lines at the top of a Markdown file: SKILL.md, IDENTITY.md.

Anyone may have written it. PyYAML's scanner and parser read it, and nothing of it is constructed: every
scalar stays the text that was written (`no`, `1.10`, `2026-01-31`; only null is None), size, depth and
number of values are bounded, aliases count for all that they stand for, and tags are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from holdfast.errors import InvalidInput
from holdfast.text import clean_text

if TYPE_CHECKING:
    import yaml

MAX_HEAD: Final = 32_000
MAX_DEPTH: Final = 16
MAX_VALUES: Final = 4_000
_MOST_MENDED: Final = 8
_NULL: Final = frozenset(("", "~", "null", "Null", "NULL"))
_KNOWN_TAGS: Final = frozenset(
    ("!", *(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq")))
)
_ONE_LINE: Final = re.compile(r"([A-Za-z_][\w.-]{0,99})([ \t]*:[ \t]+)([^\s|>{&*!\"'].*?)[ \t]*")
_NEVER_MENDED: Final = frozenset(("metadata", "requires"))


class BadFrontmatter(InvalidInput):
    """What is wrong, and in which line of the file."""

    code = "bad_frontmatter"

    def __init__(self, message: str, line: int, *, hint: str = "") -> None:
        super().__init__(f"line {line}: {message}", hint=hint)
        self.line = line


class _NotYaml(BadFrontmatter):
    """The parser's own refusal, which quotes may mend; what is over a bound is not tried again."""


@dataclass(frozen=True, slots=True)
class Frontmatter:
    """The values, the text behind them, the line of each key, and what was read although it is not YAML."""

    values: Mapping[str, Any]
    body: str
    lines: Mapping[str, int]
    notes: tuple[str, ...] = ()

    def line(self, key: str) -> int:
        return self.lines.get(key, 1)


def read_frontmatter(text: str) -> Frontmatter:
    """`BadFrontmatter` when there is none, or none that can be read."""
    head, body, first = _split(text)
    if len(head) > MAX_HEAD:
        raise BadFrontmatter(f"the frontmatter is longer than {MAX_HEAD} characters", first)
    notes: list[str] = []
    while True:
        reading = _Reading(head, first)
        try:
            return Frontmatter(reading.values(), body, reading.lines, tuple(notes))
        except _NotYaml as error:
            mended = _quoted(head, error.line - first)
            if mended is None or len(notes) == _MOST_MENDED:
                raise
            head, key = mended
            notes.append(f"line {error.line}: the value of {key} is not YAML and was read as text; quote it")


def _split(text: str) -> tuple[str, str, int]:
    """The head, the body, and the line at which the head begins."""
    lines = re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff"))
    start = next((at for at, line in enumerate(lines) if line.strip()), 0)
    if lines[start].rstrip() != "---":
        raise BadFrontmatter("no frontmatter", 1, hint="Begin with --- and name: and description: lines.")
    for end in range(start + 1, len(lines)):
        if lines[end].rstrip() in ("---", "..."):
            body = "\n".join(lines[end + 1 :]).strip("\n")
            return "".join(f"{line}\n" for line in lines[start + 1 : end]), body, start + 2
    raise BadFrontmatter("the frontmatter is not closed", start + 1, hint="End it with a line ---.")


def _quoted(head: str, at: int) -> tuple[str, str] | None:
    """The head with the one-line value at that line in quotes; None where that would hide a real fault.

    `description: Use when: …` is no YAML, yet common, and OpenClaw reads such a line as text too.
    """
    lines = head.split("\n")
    match = _ONE_LINE.fullmatch(lines[at]) if 0 <= at < len(lines) else None
    if match is None or match[1] in _NEVER_MENDED:
        return None
    value = match[3].replace("'", "''")
    lines[at] = f"{match[1]}{match[2]}'{value}'"
    return "\n".join(lines), match[1]


class _Reading:
    """Builds values from the parser's events, and counts them."""

    def __init__(self, head: str, first: int) -> None:
        self.lines: dict[str, int] = {}
        self._head = head
        self._first = first
        self._values = 0
        self._anchors: dict[str, tuple[Any, int]] = {}

    def values(self) -> dict[str, Any]:
        import yaml

        try:
            return self._document(iter(yaml.parse(self._head, Loader=yaml.BaseLoader)))
        except yaml.reader.ReaderError as error:
            line = self._first + self._head.count("\n", 0, error.position)
            raise BadFrontmatter(f"a character that YAML does not take: {error.character!r}", line) from None
        except yaml.MarkedYAMLError as error:
            line = self._first + _line_of(error)
            raise _NotYaml(f"not YAML: {error.problem or error.context}", line) from None
        except (
            ValueError,
            OverflowError,
        ) as error:  # an escape such as "\UFFFFFFFF", a version of 5,000 digits
            raise BadFrontmatter(f"not YAML: {error}", self._first) from None

    def _document(self, events: Iterator[yaml.Event]) -> dict[str, Any]:
        import yaml

        found: Any = None
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent) and found is not None:
                raise self._bad("a second document", event)
            if isinstance(event, yaml.NodeEvent):
                found = self._node(event, events, 0)
                if not isinstance(found, dict):
                    raise self._bad("not a map of `key: value` lines", event)
        return found or {}

    def _node(self, event: yaml.Event, events: Iterator[yaml.Event], depth: int) -> Any:
        import yaml

        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        before = self._values
        self._count(1, event)
        if depth > MAX_DEPTH:
            raise self._bad(f"nested deeper than {MAX_DEPTH} levels", event)
        node = cast("yaml.ScalarEvent | yaml.CollectionStartEvent", event)
        if node.tag is not None and node.tag not in _KNOWN_TAGS:
            raise self._bad(f"the tag {str(node.tag)[:60]} is not read", event)
        if isinstance(node, yaml.ScalarEvent):
            value: Any = _scalar(node)
        elif isinstance(node, yaml.SequenceStartEvent):
            value = self._list(events, depth)
        else:
            value = self._map(events, depth)
        if node.anchor is not None:
            self._anchors[node.anchor] = value, self._values - before
        return value

    def _list(self, events: Iterator[yaml.Event], depth: int) -> list[Any]:
        import yaml

        found: list[Any] = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            found.append(self._node(event, events, depth + 1))
        return found

    def _map(self, events: Iterator[yaml.Event], depth: int) -> dict[str, Any]:
        import yaml

        found: dict[str, Any] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise self._bad("a key that is not plain text", event)
            key = _joined(event.value)
            if key in found:
                raise self._bad(f"{key[:60]} is there twice", event)
            if depth == 0:
                self.lines[key] = self._line(event)
            found[key] = self._node(next(events), events, depth + 1)
        return found

    def _alias(self, event: yaml.AliasEvent) -> Any:
        """What the anchor stands for; one within itself is not known yet, and so refused."""
        anchor = event.anchor or ""
        if anchor not in self._anchors:
            raise self._bad(f"*{anchor[:60]} stands for nothing", event)
        value, size = self._anchors[anchor]
        self._count(size, event)
        return value

    def _count(self, number: int, event: yaml.Event) -> None:
        self._values += number
        if self._values > MAX_VALUES:
            raise self._bad(f"more than {MAX_VALUES} values", event)

    def _line(self, event: yaml.Event) -> int:
        return self._first + (0 if event.start_mark is None else event.start_mark.line)

    def _bad(self, message: str, event: yaml.Event) -> BadFrontmatter:
        return BadFrontmatter(message, self._line(event))


def _line_of(error: yaml.MarkedYAMLError) -> int:
    """Where the fault is, or where that began which finds no end."""
    no_end = "stream end" in (error.problem or "") or "could not find expected" in (error.problem or "")
    mark = (error.context_mark if no_end else None) or error.problem_mark or error.context_mark
    return 0 if mark is None else mark.line


def _scalar(event: yaml.ScalarEvent) -> str | None:
    plain = not event.style and event.implicit[0]
    return None if plain and event.value in _NULL else _joined(event.value)


def _joined(text: str) -> str:
    """Two JSON escapes that are one character (`"\\ud83d\\ude00"`) become that character."""
    return clean_text(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
