"""A page as text to read: headings, lists, links and code are kept, scripts and hidden parts left out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode


def _names(*lines: str) -> frozenset[str]:
    return frozenset(name for line in lines for name in line.split())


_SILENT: Final = _names(
    "script style noscript template svg canvas iframe object embed audio video select button input",
    "textarea dialog nav aside head",
)
_BLOCKS: Final = _names(
    "p div section article main header footer ul ol table figure figcaption blockquote dl dt dd form",
    "fieldset details summary address",
)
_HEADINGS: Final = {f"h{n}": "#" * n for n in range(1, 7)}
_NO_DISPLAY: Final = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.I)
_BLANKS: Final = re.compile(r"[ \t\r\n\f\v\xa0]+")
_TAG: Final = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)")
_SHALLOW: Final = _names(
    "p li td th tr dt dd option br img hr input meta link source col wbr area base embed track",
    "tbody thead",
)
_DEEPEST: Final = 1_000
_MOST_TAGS: Final = 100_000
_LEAST: Final = 200
_MOST_LINK: Final = 500


@dataclass(frozen=True, slots=True)
class Readable:
    title: str
    text: str


def readable(html: str, url: str) -> Readable:
    """The main part of a page as Markdown. Links are whole; what a reader would not see is not there.

    A parser takes time in the square of how deep a page nests. One that no person wrote is only stripped.
    """
    if _monstrous(html):
        return Readable("", _stripped(html))
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(html)
    heading = tree.css_first("title")
    title = _BLANKS.sub(" ", heading.text()).strip() if heading is not None else ""
    body = tree.body
    if body is None:
        return Readable(title, "")
    whole = _written(body, url)
    for name in ("main", "article"):
        part = tree.css(name)
        text = _written(part[0], url) if len(part) == 1 else ""
        if len(text) >= max(_LEAST, len(whole) // 4):
            return Readable(title, text)
    return Readable(title, whole)


def _monstrous(html: str) -> bool:
    depth = 0
    for count, tag in enumerate(_TAG.finditer(html)):
        if tag[2].lower() not in _SHALLOW:
            depth = max(0, depth - 1) if tag[1] else depth + 1
        if depth > _DEEPEST or count > _MOST_TAGS:
            return True
    return False


def _stripped(html: str) -> str:
    """The words between tags, in one pass."""
    words: list[str] = []
    silent = ""
    for piece in html.split("<"):
        tag, closed, text = piece.partition(">")
        name = tag.split(None, 1)[0].lower() if tag.split() else ""
        if silent:
            silent = "" if name == f"/{silent}" else silent
        elif name in _SILENT:
            silent = name
        if closed and not silent and text.strip():
            words.append(" ".join(text.split()))
    return "\n".join(words)


def _written(root: LexborNode, url: str) -> str:
    page = _Page(url)
    for node, entering in _walked(root):
        if entering:
            page.enter(node)
        else:
            page.leave(node)
    return page.text()


def _walked(root: LexborNode) -> Iterator[tuple[LexborNode, bool]]:
    """Every node on the way in and on the way out, without recursion: a page may nest as deep as it likes."""
    stack: list[tuple[LexborNode, bool]] = [(root, True)]
    while stack:
        node, entering = stack.pop()
        if entering and _hidden(node):
            continue
        yield node, entering
        if entering:
            stack.append((node, False))
            stack += [(child, True) for child in reversed(list(_children(node)))]


def _children(node: LexborNode) -> Iterator[LexborNode]:
    child = node.child
    while child is not None:
        yield child
        child = child.next


def _hidden(node: LexborNode) -> bool:
    tag = node.tag or ""
    if tag in _SILENT or tag == "-comment" or tag == "_comment":
        return True
    if tag.startswith("-"):
        return False
    marks = node.attributes
    return (
        "hidden" in marks
        or marks.get("aria-hidden") == "true"
        or _NO_DISPLAY.search(marks.get("style") or "") is not None
    )


@dataclass(slots=True)
class _Page:
    """What was written so far. A gap is only written once something follows it."""

    url: str
    parts: list[str] = field(default_factory=list)
    gap: str = ""
    lists: list[int | None] = field(default_factory=list)
    exact: int = 0

    def text(self) -> str:
        return "".join(self.parts).strip() + ("\n" if self.parts else "")

    def enter(self, node: LexborNode) -> None:
        tag = node.tag or ""
        if tag == "-text":
            self._say(node.text_content or "")
        elif tag in _HEADINGS:
            self._break(2)
            self._put(f"{_HEADINGS[tag]} ")
        elif tag == "li":
            self._item()
        elif tag == "pre":
            self._break(2)
            self._put("```\n")
            self.exact += 1
        elif tag == "img":
            alt = (node.attributes.get("alt") or "").strip()
            self._put(f"[image: {alt[:200]}]" if alt else "")
        else:
            self._open(tag, node)

    def leave(self, node: LexborNode) -> None:
        tag = node.tag or ""
        if tag == "pre":
            self.exact -= 1
            self._put("\n```")
            self._break(2)
        elif tag == "code" and not self.exact:
            self._put("`")
        elif tag in ("td", "th"):
            self.gap = self.gap or " | "
        elif tag in ("tr", "li"):
            self._break(1)
        elif tag == "a" and (link := self._link(node)):
            self._put(f"]({link})")
        elif tag in _HEADINGS or tag in _BLOCKS:
            if tag in ("ul", "ol") and self.lists:
                self.lists.pop()
            self._break(1 if self.lists else 2)

    def _open(self, tag: str, node: LexborNode) -> None:
        if tag in ("ul", "ol"):
            self._break(1 if self.lists else 2)
            self.lists.append(0 if tag == "ol" else None)
        elif tag == "code" and not self.exact:
            self._put("`")
        elif tag == "a" and self._link(node):
            self._put("[")
        elif tag == "br":
            self._break(1)
        elif tag == "hr":
            self._break(2)
            self._put("---")
            self._break(2)
        elif tag in _BLOCKS or tag == "tr":
            self._break(1 if self.lists or tag == "tr" else 2)

    def _say(self, text: str) -> None:
        if self.exact:
            self._put(text)
            return
        words = _BLANKS.sub(" ", text)
        if words.strip():
            if words[0] == " ":
                self.gap = self.gap or " "
            self._put(words.strip(" "))
        if words.endswith(" "):
            self.gap = self.gap or " "

    def _item(self) -> None:
        self._break(1)
        depth = "  " * max(0, len(self.lists) - 1)
        number = self.lists[-1] if self.lists else None
        if number is None:
            self._put(f"{depth}- ")
        else:
            self.lists[-1] = number + 1
            self._put(f"{depth}{number + 1}. ")

    def _link(self, node: LexborNode) -> str:
        href = (node.attributes.get("href") or "").strip()
        if not href or href.startswith("#"):
            return ""
        try:
            full = urljoin(self.url, href)
        except ValueError:
            return ""
        plain = full.startswith(("http://", "https://")) and len(full) <= _MOST_LINK
        return full.replace(" ", "%20").replace(")", "%29") if plain else ""

    def _break(self, lines: int) -> None:
        wanted = "\n" * lines
        if not self.gap.startswith("\n") or len(self.gap) < lines:
            self.gap = wanted

    def _put(self, text: str) -> None:
        if text:
            if self.parts:
                self.parts.append(self.gap)
            self.parts.append(text)
            self.gap = ""
