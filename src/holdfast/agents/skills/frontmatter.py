"""The head of a SKILL.md: a small part of YAML, read without a YAML library.

Understood are `key: value` with plain, quoted and block (`|`, `>`) text, lists, nested maps, and JSON in
any of these places, with comments and trailing commas. That is what skills hold. Not understood, on purpose:
anchors, tags, and words that turn into something else (`no` stays "no"; a reader of a flag decides).
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from holdfast.errors import InvalidInput

MAX_HEAD: Final = 32_000
MAX_DEPTH: Final = 8
MAX_LOOSE: Final = 8_000
_NAME: Final = r"""(?:"([^"]{1,100})"|'([^']{1,100})'|([A-Za-z_][\w.-]{0,99}))"""
_KEY: Final = re.compile(_NAME + r"[ \t]*:(?:[ \t]+(.*))?")
_QUOTED: Final = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')(?:\s+#.*)?""", re.DOTALL)
_Lines = list[tuple[int, str]]


def split(text: str) -> tuple[str, str]:
    """The head and the body; `InvalidInput` when there is no head."""
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != "---":
        raise InvalidInput("no frontmatter", hint="Begin SKILL.md with --- and name: and description: lines.")
    for end, line in enumerate(lines[1:], 1):
        if line.rstrip() in ("---", "..."):
            return "\n".join(lines[1:end]), "\n".join(lines[end + 1 :]).strip("\n")
    raise InvalidInput("the frontmatter is not closed", hint="End it with a line ---.")


def read(head: str) -> dict[str, Any]:
    """The map that the head is."""
    if len(head) > MAX_HEAD:
        raise InvalidInput(f"the frontmatter is longer than {MAX_HEAD} characters")
    lines = [(len(line) - len(line.lstrip(" ")), line) for line in head.splitlines()]
    return _map(lines, 0)


def _map(lines: _Lines, depth: int) -> dict[str, Any]:
    if depth > MAX_DEPTH:
        raise InvalidInput(f"the frontmatter is nested deeper than {MAX_DEPTH} levels")
    found: dict[str, Any] = {}
    at = 0
    while at < len(lines):
        indent, line = lines[at]
        at += 1
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _KEY.fullmatch(line.strip())
        if match is None:
            raise InvalidInput(f"not a `key: value` line: {line.strip()[:60]!r}")
        inner, at = _inner(lines, at, indent)
        key = match[1] or match[2] or match[3]
        if key in found:
            raise InvalidInput(f"{key} is there twice")
        found[key] = _value((match[4] or "").strip(), inner, depth)
    return found


def _inner(lines: _Lines, at: int, indent: int) -> tuple[_Lines, int]:
    """The lines that belong to a key: all that are indented further, lists also at its own level."""
    start = at
    while at < len(lines):
        deeper, line = lines[at]
        closes = line.strip()[:1] in ("}", "]") or (line.lstrip().startswith("- ") and deeper == indent)
        if line.strip() and deeper <= indent and not closes:
            break
        at += 1
    return lines[start:at], at


def _value(text: str, inner: _Lines, depth: int) -> Any:
    rest = [line for _, line in inner]
    if text[:1] in ("|", ">"):
        return _block(text, inner)
    if text[:1] in ("{", "[") or (not text and _first(rest)[:1] in ("{", "[")):
        return _json("\n".join((text, *rest)))
    if text and not _is_comment(text):
        return _scalar(" ".join((text, *(line.strip() for line in rest if line.strip()))))
    if _first(rest).startswith("- ") or _first(rest) == "-":
        return [_item(line.strip()) for line in rest if line.strip() and not _is_comment(line.strip())]
    return _map(inner, depth + 1) if _first(rest) else ""


def _first(lines: list[str]) -> str:
    return next((line.strip() for line in lines if line.strip() and not _is_comment(line.strip())), "")


def _is_comment(text: str) -> bool:
    return text.startswith("#")


def _item(text: str) -> Any:
    if not text.startswith("-"):
        raise InvalidInput(f"not a list item: {text[:60]!r}")
    inner = text[1:].strip()
    return _json(inner) if inner[:1] in ("{", "[") else _scalar(inner)


def _block(mark: str, inner: _Lines) -> str:
    """`|` keeps the lines, `>` folds them; both without the indent of the first."""
    margin = min((indent for indent, line in inner if line.strip()), default=0)
    lines = [line[margin:].rstrip() for _, line in inner]
    if mark[0] == "|":
        return "\n".join(lines).strip("\n")
    return re.sub(r"\n{2,}", "\n", "\n".join(lines)).replace("\n", " ").strip()


def _scalar(text: str) -> str:
    text = text.strip()
    quoted = _QUOTED.fullmatch(text)
    if quoted is None:
        return re.split(r"\s#", text, maxsplit=1)[0].rstrip()
    inner = quoted[1][1:-1]
    if quoted[1][0] == "'":
        return inner.replace("''", "'")
    try:
        return str(json.loads(quoted[1], strict=False))
    except ValueError:
        return inner


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        if len(text) > MAX_LOOSE:  # the lenient reader takes its time, and anyone may write a skill
            raise InvalidInput(f"JSON of more than {MAX_LOOSE} characters must be plain JSON") from None
    import json5

    try:
        return json5.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"not JSON: {' '.join(text.split())[:80]}") from error
