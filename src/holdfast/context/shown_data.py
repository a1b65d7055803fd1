"""What a model was shown that is data: words of tools, files, other sessions, strangers. They elect nothing.

A word that steers the runtime counts only as the model's own. Where it stood in data, a reply that has it
repeats it, whatever it was dressed in: letters, layout and escapes make no difference here.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from holdfast.context.fence import fenced_parts, in_plain_letters
from holdfast.context.messages import AssistantMessage, CarrierMessage, Message, Trust

_ESCAPED: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|[nrtbf\"/])")
_MADE_VISIBLE: Final = re.compile(r"\[U\+[0-9A-F]{4,6}\]|\[hidden characters: \d+\]")
_SPEAKER: Final = re.compile(r"^\s*(?:[-*] )?(?:user|assistant|Current user intent): ")
_BETWEEN: Final = re.compile(r"\W+")


@dataclass(frozen=True, kw_only=True)
class ShownData:
    """`now` came with this turn and `before` with earlier ones; `recalled` is what the runtime put beside the
    user's words, and `kept` what the model once wrote down itself.

    The rest is no data: `owner` are the words of who has a say here, `model` those of the model in this
    conversation, and `taught` the operator's. What is recalled of those is theirs, not data.
    """

    now: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    recalled: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    owner: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    taught: tuple[str, ...] = ()

    def has_word(self, word: str, *, kept: bool = False) -> bool:
        """Whether a bare word, which anyone may have used long ago, stands in what came with this turn."""
        wanted = f" {plain(word)} "
        if not any(_may_hold(text, word) for text in (*self.now, *self.recalled, *self.kept)):
            return False
        texts = (*self._news, *self.kept) if kept else self._news
        lines = (line for text in texts for line in text.splitlines() if _may_hold(line, word))
        found = (line for line in lines if wanted in f" {plain(line)} ")
        return any(line.strip() not in self._taught_lines for line in found) and wanted not in self._owners

    def has_text(self, text: str) -> bool:
        """Whether others have said this, now or before, and not who has a say."""
        wanted = f" {plain(text)} "
        return wanted in self._said_by_others and wanted not in self._owners

    def has_form(self, text: str) -> bool:
        """As `has_text`, in what the model wrote down too: what is no prose is nobody's by accident."""
        wanted = f" {plain(text)} "
        return self.has_text(text) or (wanted in _joined(self.kept) and wanted not in self._owners)

    @cached_property
    def _news(self) -> tuple[str, ...]:
        """What came with this turn, without the lines that recall this very conversation."""
        own = _joined((*self.owner, *self.model))
        lines = (line for text in self.recalled for line in text.splitlines())
        return (*self.now, *(line for line in lines if not _recalls(line, own)))

    @cached_property
    def _said_by_others(self) -> str:
        return _joined((*self._news, *self.before))

    @cached_property
    def _owners(self) -> str:
        return _joined(self.owner)

    @cached_property
    def _taught_lines(self) -> frozenset[str]:
        return frozenset(line.strip() for text in self.taught for line in text.splitlines())


def shown_data(
    messages: Sequence[Message], *, is_others: Callable[[Message], bool] = lambda message: False
) -> ShownData:
    """Sort out a context. `is_others` says of a message with a person's trust whether it is data too."""
    start = next((i for i, m in enumerate(messages) if isinstance(m, CarrierMessage)), 0)
    found: dict[str, list[str]] = {}
    for index, message in enumerate(messages):
        for trust, text in _parts(message):
            others = trust is Trust.USER and is_others(message)
            found.setdefault(_place(message, trust, others, is_new=index >= start), []).append(text)
    return ShownData(**{name: tuple(texts) for name, texts in found.items()})


def _place(message: Message, trust: Trust, others: bool, *, is_new: bool) -> str:
    if isinstance(message, AssistantMessage):
        return "model"
    if trust is Trust.OPERATOR:
        return "taught"
    if trust is Trust.MODEL:
        return "kept"
    if trust is Trust.USER and not others:
        return "owner"
    if isinstance(message, CarrierMessage):
        return "recalled"
    return "now" if is_new else "before"


def plain(text: str) -> str:
    """The words alone: in small plain letters, with one blank between them."""
    shown = _MADE_VISIBLE.sub("", _ESCAPED.sub(_unescaped, text))
    folded = unicodedata.normalize("NFKC", in_plain_letters(shown)).casefold()
    seen = "".join(c for c in folded if unicodedata.category(c) != "Cf")
    return _BETWEEN.sub(" ", seen).strip()


def _parts(message: Message) -> Iterator[tuple[Trust, str]]:
    """Whose words stand where in a message."""
    if message.trust is Trust.OPERATOR:
        yield from fenced_parts(message.text)
    else:
        yield message.trust, message.text


def _may_hold(text: str, word: str) -> bool:
    """A quick look that misses nothing: whatever is not plain ASCII is looked at closely."""
    return not text.isascii() or "\\" in text or "[" in text or word.casefold() in text.casefold()


def _recalls(line: str, own: str) -> bool:
    """Whether a recalled line is of this conversation itself, perhaps cut short."""
    words = plain(_SPEAKER.sub("", line))
    return not words or f" {words} " in own or (line.rstrip().endswith("…") and f" {words}" in own)


def _joined(texts: Iterable[str]) -> str:
    return f" {' '.join(map(plain, texts))} "


def _unescaped(match: re.Match[str]) -> str:
    return " " if match[1] is None else chr(int(match[1], 16))
