"""Short words for long ones: the chip of an entry, the name of a new topic, the sentences of a digest."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final

from holdfast.board.words import FUNCTION, is_filler, stem, terms

CHIP_CHARS: Final = 56
NAME_CHARS: Final = 60
_HEAD: Final = 4_000
_CHIP_HEAD: Final = 800
_MARKED: Final = re.compile(
    r"[*_`~|#>\[\]]|^[ \t]*(?:[-+•]|\d{1,9}[.)])[ \t]|^[ \t]*[=-]{2,}[ \t]*$", re.MULTILINE
)
_URL = re.compile(r"https?://\S{1,500}")
_END = re.compile(r"(?<=[.!?…])[\"'”’)]{0,2}\s+|\n+")
_ABBREVIATED: Final = re.compile(
    r"""(?:^|[\s(\"'“])(?:dr|mr|mrs|ms|prof|st|no|nr|inc|ltd|co|vs|approx|ca|fig|vol|dept|est|tel|abs|bzw|z\.\s?b
      |d\.\s?h|u\.\s?a|e\.g|i\.e|cf|incl|inkl|zzgl|mind|max|min|str|hr|fr|jan|feb|mar|apr|jun|jul|aug|sept?|oct
      |nov|dec|dez|okt|[a-z])\.\Z""",
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
_WORD = re.compile(r"\d+(?:[.,:]\d+)+|~?[\w/][\w'’/.+#&*-]*")
_PIECE = re.compile(r"[;()\"“”!?]|[,:](?!\d)|(?<!\d)[,:]|\s-\s|\.\s|\.$")
_UNITS = """
utc gmt cet cest est pst am pm euro eur dollar usd chf pound cent percent prozent per pro second sekunde
sekunden minute minuten hour stunde stunden uhr day tag tage week woche wochen month monat monate year jahr
jahre kg km cm mm ml mb gb tb kb ms below above over under around about unter über etwa rund monday tuesday
wednesday thursday friday saturday sunday montag dienstag mittwoch donnerstag freitag samstag sonntag
"""
_MEASURES: Final = frozenset(form for word in _UNITS.split() for form in (word, stem(word)))


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
    return bool(_ORDINAL.search(tail)) and following.isalnum()


def chip(text: str, limit: int = CHIP_CHARS) -> str:
    """One line that says what an entry is about: its first sentence with meaning, cut at a word."""
    found = sentences(text, _CHIP_HEAD) or [" ".join(text[:_HEAD].split())]
    telling = next((one for one in found if any(not is_filler(t) for t in terms(one))), found[0])
    return cut(_capital(_without_opening(telling)) or telling, limit)


def topic_name(text: str) -> str | None:
    """A readable name for what a text is about; None when nothing in it tells."""
    weight = Counter(term for term in terms(text) if not (is_filler(term) or _is_measure(term)))
    if not weight:
        return None
    best = max(_phrases(text), key=lambda phrase: (_worth(phrase, weight), -len(phrase)), default="")
    if len(terms(best)) >= 2:
        return cut(_capital(best), NAME_CHARS)
    said = chip(text, NAME_CHARS).rstrip(" .!?…:;,")
    return cut(_capital(said), NAME_CHARS) or None


def cut(text: str, limit: int) -> str:
    """At most `limit` characters, cut between words where there is a place for it."""
    if len(text) <= limit:
        return text
    head = text[: limit - 1]
    space = head.rfind(" ")
    return (head[:space] if space > limit // 2 else head).rstrip(" ,;:-") + "…"


def _without_opening(text: str) -> str:
    start = 0
    while match := _OPENING.match(text, start):
        start = match.end()
    return text[start:]


def _phrases(text: str) -> list[str]:
    """Runs of meaning words between function words and marks, at most five words each."""
    found: list[str] = []
    for sentence in sentences(text)[:12]:
        for piece in _PIECE.split(_without_opening(sentence)):
            run: list[str] = []
            for word in _WORD.findall(piece):
                if word.casefold() in FUNCTION or _all_filler(word):
                    found += _named(run)
                    run = []
                else:
                    run.append(word.rstrip(".'’-"))
            found += _named(run)
    return found


def _named(run: Sequence[str]) -> list[str]:
    """A run as a name: no number, unit or time at either end."""
    kept = list(run)
    while kept and _is_measure(kept[0]):
        kept.pop(0)
    kept = kept[:5]
    while kept and _is_measure(kept[-1]):
        kept.pop()
    return [" ".join(kept)] if kept else []


def _is_measure(word: str) -> bool:
    folded = word.casefold().strip(".")
    return (
        not any(c.isalpha() for c in folded) or folded.removesuffix("s") in _MEASURES or folded in _MEASURES
    )


def _worth(phrase: str, weight: Counter[str]) -> float:
    words = set(terms(phrase))
    return sum(1 + weight[word] for word in words) if len(words) <= 5 else 0


def _all_filler(word: str) -> bool:
    return all(is_filler(term) for term in terms(word))


def _capital(text: str) -> str:
    """With a capital letter, unless it begins with an identifier, which is quoted to the letter."""
    first = text.split(" ", 1)[0].rstrip(".,:;!?")
    return text[:1].upper() + text[1:] if first.isalpha() else text
