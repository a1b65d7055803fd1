"""Short words for long ones: the chip of an entry, the sentences of a digest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final

from holdfast.board.words import each_term, is_filler

CHIP_CHARS: Final = 56
_HEAD: Final = 4_000
_CHIP_HEAD: Final = 800
_MARKED: Final = re.compile(
    r"[*_`~|#>\[\]]|^[ \t]*(?:[-+•]|\d{1,9}[.)])[ \t]|^[ \t]*[=-]{2,}[ \t]*$", re.MULTILINE
)
_URL = re.compile(r"https?://\S{1,500}")
_END = re.compile(r"(?<=[.!?…])[\"'”’)]{0,2}\s+|\n+")
_ABBREVIATED: Final = re.compile(
    r"""(?:^|[\s(\"'“])(?:dr|mr|mrs|ms|prof|vs|approx|ca|bzw|z\.\s?b|d\.\s?h|e\.g|i\.e|cf|incl|inkl|zzgl|hr|fr)\.\Z""",
    re.VERBOSE | re.IGNORECASE,
)
# These end sentences too ("I said no."): what follows tells.
_MAYBE_ABBREVIATED: Final = re.compile(
    r"""(?:^|[\s(\"'“])(?:st|no|nr|inc|ltd|co|fig|vol|dept|est|tel|abs|u\.\s?a|mind|max|min|str|jan|feb|mar|apr|jun
      |jul|aug|sept?|oct|nov|dec|dez|okt|[a-z])\.\Z""",
    re.VERBOSE | re.IGNORECASE,
)
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


def plain(text: str, head: int = _HEAD) -> str:
    """Running text without code blocks, addresses and markup; long texts by their head.

    What only looks like markup (`pg_stat_statements`, `~/backup/*.sql`, `12. May`) stays to the letter.
    """
    text = text[:head]
    if _MARKED.search(text):
        text = "\n".join(_unmarked(text))
    return _URL.sub(" ", text) if "://" in text else text


@cache
def _parser() -> Any:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    # Indented lines are seldom code in talk; backslashes and entities are what was written.
    return parser.disable(["code", "escape", "entity", "reference"])


def _unmarked(text: str) -> Iterator[str]:
    """The lines of a markdown text, as they would be read out."""
    tokens = _parser().parse(text)
    for place, token in enumerate(tokens):
        if token.type == "inline":
            words = "".join(_inline(one) for one in token.children or ())
            yield _number(tokens, place) + words


def _inline(token: Any) -> str:
    if token.type in ("softbreak", "hardbreak"):
        return "\n"
    return str(token.content) if token.type in ("text", "code_inline", "html_inline", "image") else ""


def _number(tokens: Sequence[Any], place: int) -> str:
    """A sentence may begin with a date: the number of a list that has but one point belongs to the words."""
    opens = tokens[max(0, place - 3) : place]
    if [one.type for one in opens] != ["ordered_list_open", "list_item_open", "paragraph_open"]:
        return ""
    if [one.type for one in tokens[place + 2 : place + 4]] != ["list_item_close", "ordered_list_close"]:
        return ""
    return f"{opens[1].info}{opens[1].markup} "


def sentences(text: str, head: int = _HEAD) -> list[str]:
    """In order, each on one line. None ends within a number, a date or an abbreviation."""
    found: list[str] = []
    said = plain(text, head)
    start = at = 0
    while end := _END.search(said, at):
        at = end.end()
        if "\n" in end[0] or not _goes_on(said[max(0, start) : end.start()], said[at : at + 1]):
            found.append(said[start : end.end()])
            start = at
    found.append(said[start:])
    return [line for part in found if (line := " ".join(part.split()))]


def _goes_on(before: str, following: str) -> bool:
    """Whether a full stop is not the end of its sentence."""
    tail = before[-12:]
    if _ABBREVIATED.search(tail) or (_DATE.search(tail) and following.islower()):
        return True
    if _MAYBE_ABBREVIATED.search(tail):
        return following.islower() or following.isdigit()
    return bool(_ORDINAL.search(tail)) and following.isalnum()


def chip(text: str, limit: int = CHIP_CHARS) -> str:
    """One line that says what an entry is about: its first sentence with meaning, cut at a word."""
    found = sentences(text, _CHIP_HEAD) or [" ".join(text[:_HEAD].split())]
    telling = next((one for one in found if any(not is_filler(t) for t in each_term(one))), found[0])
    return cut(capital(without_opening(telling)) or telling, limit)


def cut(text: str, limit: int) -> str:
    """At most `limit` characters, cut between words where there is a place for it."""
    if len(text) <= limit:
        return text
    head = text[: limit - 1]
    space = head.rfind(" ")
    return (head[:space] if space > limit // 2 else head).rstrip(" ,;:-") + "…"


def without_opening(text: str) -> str:
    """Without the greeting or the "can you please" that it begins with."""
    start = 0
    while match := _OPENING.match(text, start):
        start = match.end()
    return text[start:]


def capital(text: str) -> str:
    """With a capital letter, unless it begins with an identifier, which is quoted to the letter."""
    first = text.split(" ", 1)[0].rstrip(".,:;!?")
    return text[:1].upper() + text[1:] if first.isalpha() else text
