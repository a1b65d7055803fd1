"""Short words for long ones: the chip of an entry, the name of a new topic, the sentences of a digest."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from holdfast.board.words import FUNCTION, is_filler, terms

CHIP_CHARS: Final = 56
NAME_CHARS: Final = 60
_HEAD: Final = 4_000
_CODE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]\n]{0,200})\]\([^)\n]{0,500}\)")
_URL = re.compile(r"https?://\S{1,500}")
_MARKUP = re.compile(r"^[ \t]*(?:#{1,6}|[-*+•>]|\d{1,3}[.)])[ \t]+|[*_`~|]{1,3}", re.MULTILINE)
_SENTENCE = re.compile(r"(?<=[.!?…])\s+|\n+")
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
_PHRASE_BREAK = re.compile(r"[^\w'’/.+#&-]+")
_WORD = re.compile(r"[\w][\w'’/.+#&-]*")


def plain(text: str) -> str:
    """Running text without code, links and markup; long texts by their head."""
    text = _CODE.sub(" ", text[:_HEAD])
    text = _URL.sub(" ", _LINK.sub(r"\1", text))
    return _MARKUP.sub("", text)


def sentences(text: str) -> list[str]:
    return [found for part in _SENTENCE.split(plain(text)) if (found := " ".join(part.split()))]


def chip(text: str, limit: int = CHIP_CHARS) -> str:
    """One line that says what an entry is about: its first sentence with meaning, cut at a word."""
    found = sentences(text) or [" ".join(text[:_HEAD].split())]
    telling = next((one for one in found if any(not is_filler(t) for t in terms(one))), found[0])
    return cut(_capital(_without_opening(telling)) or telling, limit)


def topic_name(text: str) -> str | None:
    """A readable name for what a text is about; None when nothing in it tells."""
    weight = Counter(term for term in terms(text) if not is_filler(term))
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
        run: list[str] = []
        for piece in re.split(r"[,;:()\"“”!?]|\s-\s|\.\s|\.$", _without_opening(sentence)):
            for word in _PHRASE_BREAK.split(piece):
                if word and word.casefold() not in FUNCTION and not _all_filler(word):
                    run.append(word)
                else:
                    found += _runs(run)
                    run = []
            found += _runs(run)
            run = []
    return found


def _runs(run: Sequence[str]) -> list[str]:
    return [" ".join(run[:5])] if run else []


def _worth(phrase: str, weight: Counter[str]) -> float:
    words = set(terms(phrase))
    return sum(1 + weight[word] for word in words) if len(words) <= 5 else 0


def _all_filler(word: str) -> bool:
    return all(is_filler(term) for term in terms(word))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
