"""Text that is not the operator's is data: it cannot close its fence, nor pass for a marker of ours.

A role is a fence of its own for what a person, the model or a tool says in its own message; there only
look-alike markers are defused. Words from other sessions and from outside, and everything that is placed
into another message (summaries, recall, notes), stand in an explicit fence. Its id is a hash of what it
holds, so no text can know the id of the fence around it, and equal text gives equal bytes every turn.
"""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Iterator
from typing import Final

from holdfast.context.messages import Trust
from holdfast.errors import InvalidInput
from holdfast.hidden_characters import make_visible, visible_with_places

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
