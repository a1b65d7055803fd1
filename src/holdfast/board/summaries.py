"""Short words for long ones: the chip of an entry, the sentences of a digest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final

from holdfast.board.quoting import shorten
from holdfast.board.words import each_term, is_filler

CHIP_CHARS: Final = 56
_HEAD: Final = 4_000
_CHIP_HEAD: Final = 800
_MARKED: Final = re.compile(
    r"[*_`~|#>\[\]]|^[ \t]*(?:[-+•]|\d{1,9}[.)])[ \t]|^[ \t]*[=-]{2,}[ \t]*$", re.MULTILINE
)
_BEFORE: Final = frozenset(" \t\n(['\"„“‚«»–—")
_AFTER: Final = re.compile(r"[.,;:!?…)\]'\"”’“«»–—]*(?:\s|\Z)")
_NAME: Final = re.compile(r"\w+")
_ADDRESS: Final = re.compile(
    r"(?:[a-z][a-z0-9+.-]{1,20}://|mailto:|tel:|www\.|/\w|#\w|\.{1,2}/)", re.IGNORECASE
)
_FIGURE: Final = re.compile(r"[€$£]? ?\d")
_MONTH: Final = re.compile(
    r"""(?:jan(?:uary?)?|jänner|feb(?:ruary?|ruar)?|mar(?:ch)?|märz|apr(?:il)?|may|mai|june?|juni|july?|juli|aug(?:ust)?
      |sept?(?:ember)?|o[ck]t(?:ober)?|nov(?:ember)?|de[cz](?:ember)?)\b""",
    re.VERBOSE | re.IGNORECASE,
)
_SIGNS: Final = {"blockquote_open": ">", "list_item_open": "-+", "heading_open": "#"}
_URL = re.compile(r"https?://\S{1,500}")
_END = re.compile(r"(?<=[.!?…])[\"'”’)]{0,2}\s+|\n+")
_ABBREVIATED: Final = re.compile(
    r"""(?:^|[\s(\"'“])(?:dr|mr|mrs|ms|prof|med|phil|jur|dipl|ing|st|hr|hrn|fr|vs|approx|ca|bzw|cf|incl|inkl|zzgl|mio
      |mrd|z\.\s?b|d\.\s?h|u\.\s?a|i\.\s?d\.\s?r|e\.g|i\.e | (?-i:(?:[A-Z]\.)+[A-Z]))\.\Z""",
    re.VERBOSE | re.IGNORECASE,
)
_INITIAL: Final = re.compile(r"(?:^|[^\W\d_a-zäöüß][\w'’.-]*\s)[A-HJ-ZÄÖÜ]\.\Z")
"""Of a name: "J. R. R. Tolkien", "John F. Kennedy"."""
# These end sentences too ("I said no."): what follows tells.
_MAYBE_ABBREVIATED: Final = re.compile(
    r"""(?:^|[\s(\"'“])(?:no|nr|inc|ltd|co|fig|vol|dept|est|tel|abs|mind|max|min|[^\W\d_]*str|pp|ff|jan|feb|mar|apr|jun
      |jul|aug|sept?|oct|nov|dec|dez|okt|(?:[a-z]\.\s?)*[a-z])\.\Z""",
    re.VERBOSE | re.IGNORECASE,
)
_ONE_LETTER: Final = re.compile(r"(?:^|[\s(])[^\W\d_]\.\Z")
_ORDINAL: Final = re.compile(r"(?:^|\s)(?:[12]?\d|3[01])\.\Z")
_DATE: Final = re.compile(r"(?:^|\s)\d{1,2}\.\d{1,2}\.\Z")
_OPENING = re.compile(
    r"""(?:(?:hi|hey|hello|hallo|ok|okay|so|well|also|and|thanks|thank\ you|please|bitte|yes|yeah|no|great
         | sure|oh|wow)
         (?:\ (?:there|again|so\ much|everyone))?[,.!:\s]+
      | (?:can|could|would|will)\ you\ (?:please\ )?(?:help\ (?:me\ )?(?:with\ |to\ )?)?
      | (?:i|we)(?:'d|\ would)?\ (?:need|want|like)\ (?:you\ )?to\ | (?:i|we)\ need\ (?:help\ (?:with|on)\ )?
      | let(?:'s|\ us)\ | please\ | by\ the\ way[,\s]+ | btw[,\s]+ | new\ (?:topic|thread|question)[:,.\s]+
      | (?:a\ )?(?:different|another|unrelated)\ (?:topic|question|thing)[:,.\s]+ )""",
    re.VERBOSE | re.IGNORECASE,
)


def without_addresses(text: str) -> str:
    return _URL.sub(" ", text) if "://" in text else text


def plain(text: str, head: int = _HEAD) -> str:
    """Running text without code blocks and markup; long texts by their head.

    What only looks like markup (`pg_stat_statements`, `2*3*4`, `~/x/*.sql`, `12. May`) stays to the letter.
    """
    text = cut(text, head)
    return "\n".join(_unmarked(text)) if _MARKED.search(text) else text


@cache
def _parser() -> Any:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    # Else `arr[i](j)` would be a link.
    parser.validateLink = lambda url: _ADDRESS.match(url) is not None  # type: ignore[method-assign]
    parser.normalizeLink = lambda url: url  # type: ignore[method-assign]
    # Indented lines are seldom code in talk; backslashes, entities and <ada@ex.org> are what was written.
    return parser.disable(["code", "escape", "entity", "reference", "autolink"])


def _unmarked(text: str) -> Iterator[str]:
    """The lines of a markdown text, as they would be read out."""
    tokens = _parser().parse(text)
    first: list[int] = []
    for place, token in enumerate(tokens):
        if token.type == "ordered_list_open":
            first.append(int(token.attrs.get("start", 1)))
        elif token.type == "ordered_list_close":
            first.pop()
        elif token.type == "inline":
            words = _inline(token.children or ())
            yield _leading(tokens, place, words, enumerates=first[-1:] == [1]) + words


def _inline(children: Sequence[Any]) -> str:
    """The words of a line. Marks go where they stand around words, and stay where they stand within one."""
    said: list[str] = []
    opened: list[int] = []
    for place, token in enumerate(children):
        if token.nesting > 0:
            opened.append(len(said))
            said.append("")
        elif token.nesting < 0:
            start = opened.pop()
            before, within = "".join(said[:start]), "".join(said[start:])
            if _stands_apart(before, within, token.markup, _following(children[place + 1 :])):
                continue
            if token.type == "link_close":
                href = next(one for one in reversed(children[:place]) if one.type == "link_open").attrs[
                    "href"
                ]
                said[start], closing = "[", f"]({href})"
            else:
                said[start] = closing = token.markup
            said.append(closing)
        elif token.type == "code_inline":
            after = _following(children[place + 1 :])
            apart = _stands_apart("".join(said), token.content, "", after)
            said.append(token.content if apart else f"{token.markup}{token.content}{token.markup}")
        elif token.type in ("softbreak", "hardbreak"):
            said.append("\n")
        elif token.type in ("text", "html_inline", "image"):
            said.append(str(token.content))
    return "".join(said)


def _stands_apart(before: str, within: str, mark: str, after: str) -> bool:
    """Whether marks are around words, and not within a name, a path or a sum."""
    name = mark == "__" and _NAME.fullmatch(within) is not None
    return not name and (not before or before[-1] in _BEFORE) and _AFTER.match(after) is not None


def _following(rest: Sequence[Any]) -> str:
    """The text that comes next: closing marks are none."""
    told = next((one for one in rest if one.nesting >= 0), None)
    if told is None or told.type in ("softbreak", "hardbreak"):
        return ""
    return str(told.content) or str(told.markup)


def _leading(tokens: Sequence[Any], place: int, words: str, *, enumerates: bool) -> str:
    """What stands before a line and is no markup: the day of a date ("12. May"), a sign before a figure
    ("> 18,000", "- 5 degrees")."""
    start = place - 1
    while start > 0 and tokens[start - 1].nesting > 0:
        start -= 1
    opens = tokens[start:place]
    number = next(
        (f"{one.info}{one.markup} " for one in opens if one.type == "list_item_open" and one.info), ""
    )
    if number:
        ends = [one.type for one in tokens[place + 2 : place + 4]]
        alone = opens[0].type == "ordered_list_open" and ends == ["list_item_close", "ordered_list_close"]
        return number if alone or not enumerates or _MONTH.match(words) else ""
    if not _FIGURE.match(words):
        return ""
    return "".join(f"{one.markup} " for one in opens if one.markup and one.markup in _SIGNS.get(one.type, ""))


def sentences(text: str, head: int = _HEAD, *, addresses: bool = True) -> list[str]:
    """In order, each on one line. None ends within a number, a date or an abbreviation."""
    found: list[str] = []
    said = plain(text, head)
    said = said if addresses else without_addresses(said)
    start = at = 0
    while end := _END.search(said, at):
        at = end.end()
        if "\n" in end[0] or not _goes_on(said[start : end.start()], said[at : at + 2]):
            found.append(said[start : end.end()])
            start = at
    found.append(said[start:])
    return [line for part in found if (line := " ".join(part.split()))]


def _goes_on(before: str, following: str) -> bool:
    """Whether a full stop is not the end of its sentence."""
    tail = before[-24:]
    if before[-1:] != ".":
        return False
    if _ABBREVIATED.search(tail) or _INITIAL.search(tail) or (_DATE.search(tail) and following[:1].islower()):
        return True
    if _MAYBE_ABBREVIATED.search(tail) and (following[:1].islower() or following[:1].isdigit()):
        return True
    if _ONE_LETTER.search(tail) and following[1:2] == ".":
        return True
    if _ORDINAL.search(tail) and following[:1].isalnum():
        return True
    # Who begins sentences with capitals goes on where none stands.
    return following[:1].islower() and before[:1].isupper()


def chip(text: str, limit: int = CHIP_CHARS, *, addresses: bool = True) -> str:
    """One line that says what an entry is about: its first sentence with meaning, cut at a word."""
    found = sentences(text, _CHIP_HEAD, addresses=addresses) or [" ".join(text[:_HEAD].split())]
    telling = next((one for one in found if _tells(one)), found[0])
    left = without_opening(telling)
    return cut(capital(left) if left and left != telling else telling, limit)


def _tells(sentence: str) -> bool:
    return any(not is_filler(term) for term in each_term(without_addresses(sentence)))


def cut(text: str, limit: int) -> str:
    """At most `limit` characters, cut between words where there is a place for it."""
    if len(text) <= limit:
        return text
    space = max(text.rfind(" ", 0, limit), text.rfind("\n", 0, limit))
    return text[:space].rstrip(" \n,;:-") + "…" if space > limit // 2 else shorten(text, limit)


def without_opening(text: str) -> str:
    """Without the greeting or the "can you please" that it begins with."""
    start = 0
    while match := _OPENING.match(text, start):
        start = match.end()
    return text[start:]


def capital(text: str) -> str:
    """With a capital letter, unless it begins with an identifier, which is quoted to the letter."""
    first = text.split(" ", 1)[0].rstrip(".,:;!?")
    return text[:1].upper() + text[1:] if first.isalpha() and first.islower() else text
