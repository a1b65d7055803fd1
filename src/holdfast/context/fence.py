"""Text that is data: fenced where a model reads it, and known again where it was shown.

A role is a fence of its own for what a person, the model or a tool says in its own message; there only
look-alike markers are defused. Words from other sessions and from outside, and everything that is placed
into another message (summaries, recall, notes), stand in an explicit fence. Its id is a hash of what it
holds, so no text can know the id of the fence around it, and equal text gives equal bytes every turn.

A word that steers the runtime counts only as the model's own. Where it stood in data, a reply that has it
repeats it, whatever it was dressed in: letters, layout and escapes make no difference here.
"""

from __future__ import annotations

import hashlib
import re
import string
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from holdfast.context.messages import AssistantMessage, CarrierMessage, Message, Trust
from holdfast.errors import InvalidInput
from holdfast.text import make_visible, visible_with_places

_HIDDEN: Final = (
    "\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f"
)
_GAP: Final = rf"[{_HIDDEN}\s]*"
_ANGLE: Final = "[<＜﹤]"


def _word(text: str) -> str:
    """The letters of a word with anything invisible between them."""
    return rf"[{_HIDDEN}]*".join(map(re.escape, text))


_OURS: Final = "|".join(map(_word, ("holdfast", "im_start", "im_end", "begin_openclaw", "end_openclaw")))
_KIND: Final = "|".join(map(_word, ("reminder", "prompt", "message", "instructions", "instruction")))
_ROLE: Final = rf"(?:{_word('system')}|{_word('developer')})(?:{_GAP}[-_－‑]{_GAP}(?:{_KIND}))?"
_INTERNAL: Final = rf"{_word('internal')}{_GAP}(?:{_word('task')}|{_word('context')}|{_word('event')})"
# Markers that a program would take for its own, and nothing that source code or prose commonly holds:
# what a tool read from a file must come back from the model unchanged.
_MARKER: Final = re.compile(
    rf"(?P<tag>{_ANGLE})(?={_GAP}(?:{_ANGLE}{_GAP}){{0,2}}[/|!]?{_GAP}(?:{_OURS}|{_ROLE}{_GAP}[>＞]))"
    rf"|(?P<pipe>{_ANGLE})(?={_GAP}\|)"
    rf"|(?P<sys>{_ANGLE})(?={_GAP}{_ANGLE}{_GAP}/?{_GAP}{_word('sys')}{_GAP}[>＞])"
    rf"|(?P<square>[\[［])(?={_GAP}/?{_GAP}(?:{_word('inst')}{_GAP}\]|{_INTERNAL}))",
    re.IGNORECASE,
)
# What the runtime's own words to a session begin with: others' words that stand beside them must not.
_CLAIM: Final = re.compile(
    rf"[\[［](?={_GAP}(?:{_word('continuation')}|{_word('system')}){_GAP}[:：]{_GAP}[a-z])", re.IGNORECASE
)
_FENCED: Final = re.compile(r'<holdfast:data id="([0-9a-f]{12})" trust="([a-z_]+)" source="([^"<>\n]*)">\n')
_SUSPECT: Final = re.compile(r"[<＜﹤\[［]")
_BORROWED: Final = "аɑαсϲԁеєƒɡһіıιјкκӏмոоοσрρԛгѕтτυսνѵԝхχуү"
_DRAWN_AS: Final = "aaaccdeefghiiijkklmnoooppqrsttuuvvwxxyy"


def _guises() -> dict[int, str]:
    """What a reader takes for a Latin letter, and for which: borrowed, wide, circled, mathematical."""
    latin = string.ascii_lowercase
    either = [0xFF21, 0xFF41, 0x24B6, 0x24D0, *range(0x1D400, 0x1D6A4, 26)]
    found = {start + place: letter for start in either for place, letter in enumerate(latin)}
    for borrowed, letter in zip(_BORROWED, _DRAWN_AS, strict=True):
        found |= {ord(case): letter for case in (borrowed, borrowed.upper())}
    return found | {ord("＿"): "_"}


_PLAIN: Final = _guises()


def neutralise(text: str) -> str:
    """The text with every look-alike of a marker defused and what hides in it shown; all else is left as it
    is. Idempotent."""
    return _without_markers(make_visible(text))


def disarmed(text: str) -> str:
    """The same for words that stand beside the runtime's own: they cannot begin as those do. Idempotent."""
    inner = neutralise(text)
    found = [match.start() for match in _CLAIM.finditer(in_plain_letters(inner))]
    letters = list(inner) if found else []
    for place in found:
        letters[place] = "⁅"
    return "".join(letters) or inner


def neutralised_with_places(text: str) -> tuple[str, list[int]]:
    """As `neutralise`, with the place in the text that each character of the result stands for."""
    shown, places = visible_with_places(text)
    return _without_markers(shown), places


def _without_markers(text: str) -> str:
    """Character for character: only the bracket of a marker is another one."""
    if _SUSPECT.search(text) is None:
        return text
    if text.isascii():
        return _MARKER.sub(_defused, text)
    defused = list(text)
    for match in _MARKER.finditer(text.translate(_PLAIN)):
        defused[match.start()] = _defused(match)
    return "".join(defused)


def in_plain_letters(text: str) -> str:
    """The text with every letter that is drawn like a Latin one as that one."""
    return text if text.isascii() else text.translate(_PLAIN)


def fenced_parts(text: str) -> Iterator[tuple[Trust, str]]:
    """Whose words stand where in a text of the runtime's: what each fence holds, and the operator's rest."""
    place = 0
    while (head := _FENCED.search(text, place)) is not None:
        end = text.find(f"\n</holdfast:data {head[1]}>", head.end())
        yield Trust.OPERATOR, text[place : head.start()]
        yield Trust.parse(head[2]), text[head.end() : end if end >= 0 else len(text)]
        place = end + 1 if end >= 0 else len(text)
    yield Trust.OPERATOR, text[place:]


def has_marker(text: str) -> bool:
    return _MARKER.search(text.translate(_PLAIN)) is not None


def fence(text: str, trust: Trust, source: str) -> str:
    """The text between an opening and a closing line that carry a hash of it."""
    inner = disarmed(text)
    label = re.sub(r'["<>\s]', "_", make_visible(source))[:200]
    id_ = hashlib.sha256(f"{trust.label}\n{label}\n{inner}".encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return (
        f'<holdfast:data id="{id_}" trust="{trust.label}" source="{label}">\n{inner}\n</holdfast:data {id_}>'
    )


def unfence(text: str) -> str | None:
    """What a fence of ours holds; None for anything that `fence` would not have written."""
    head = _FENCED.match(text)
    if head is None:
        return None
    inner = text[head.end() : -len(f"\n</holdfast:data {head[1]}>")]
    try:
        trust = Trust.parse(head[2])
    except InvalidInput:
        return None
    return inner if fence(inner, trust, head[3]) == text else None


def safe(text: str, trust: Trust, source: str) -> str:
    """The text as it may stand in a message of its own. Idempotent for the same trust and source."""
    if trust is Trust.OPERATOR:
        return text
    if trust >= Trust.TOOL:
        return neutralise(text)
    inner = unfence(text)
    if inner is not None and fence(inner, trust, source) == text:
        return text
    return fence(text, trust, source)


def _defused(match: re.Match[str]) -> str:
    return "⁅" if match.lastgroup == "square" else "‹"


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
