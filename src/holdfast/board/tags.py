"""Tags, and the spaces that they put a topic into. Decisions only, no I/O."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from holdfast.errors import InvalidInput
from holdfast.text import clean_text

DEFAULT_SPACE: Final = "space-default"
DEFAULT_NAME: Final = "Default"
MAX_TAGS: Final = 32
MAX_TAG: Final = 80
MAX_SLUG: Final = 64

_PREFIX: Final = "space:"
_EVERYONE: Final = frozenset(("default", "global", "all", "all-spaces"))


@dataclass(frozen=True, slots=True)
class Label:
    """A space as a tag or a name spells it."""

    space_id: str
    name: str


def slug(text: str) -> str:
    """Lower case; letters and digits of any script stay, everything between them becomes one hyphen."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    words = "".join(c if c.isalnum() else " " for c in folded).split()
    return "-".join(words)[:MAX_SLUG].strip("-")


def space_of_label(label: str) -> Label | None:
    """The space that a label names; None when nothing is left of it as a slug."""
    short = slug(label)
    if not short:
        return None
    if short in _EVERYONE:
        return Label(DEFAULT_SPACE, DEFAULT_NAME)
    return Label(f"space-{short}", " ".join(label.split()))


def space_of_tag(tag: str) -> Label | None:
    """`space:<label>` and plain tags name a space; a tag with any other prefix (`system:…`) does not."""
    text = tag.strip()
    if text[: len(_PREFIX)].casefold() == _PREFIX:
        return space_of_label(text[len(_PREFIX) :])
    return None if ":" in text else space_of_label(text)


def spaces_of_tags(tags: Iterable[str]) -> list[Label]:
    """The spaces of these tags in their order, each once."""
    found: dict[str, Label] = {}
    for tag in tags:
        label = space_of_tag(tag)
        if label is not None:
            found.setdefault(label.space_id, label)
    return list(found.values())


def membership(owner: str, tags: Iterable[str]) -> frozenset[str]:
    """Every space that a topic lies in: its owner and those that its tags name."""
    return _membership(owner, tuple(tags))


@lru_cache(maxsize=4_096)
def _membership(owner: str, tags: tuple[str, ...]) -> frozenset[str]:
    """Kept: it is asked of each topic again and again, and the same for most."""
    return frozenset((owner, *(label.space_id for label in spaces_of_tags(tags))))


def owner_of(space_id: str | None, tags: Iterable[str], *, fallback: str = DEFAULT_SPACE) -> str:
    """The space that owns a topic: the one given, else the first that its tags name, else `fallback`."""
    if space_id is not None:
        return space_id
    named = spaces_of_tags(tags)
    return named[0].space_id if named else fallback


def clean_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Trimmed, without empties and repeats (which differ by case only), in their order."""
    found: dict[str, str] = {}
    for tag in tags:
        text = " ".join(clean_text(tag).split())
        if len(text) > MAX_TAG:
            raise InvalidInput(
                f"a tag has at most {MAX_TAG} characters: {text[:40]!r}…", code="bad_tag", hint="Shorten it."
            )
        if text:
            found.setdefault(text.casefold(), text)
    if len(found) > MAX_TAGS:
        raise InvalidInput(
            f"at most {MAX_TAGS} tags, not {len(found)}", code="too_many_tags", hint="Leave some out."
        )
    return tuple(found.values())


def merge_tags(old: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    """Both; a merge never takes a tag away."""
    return clean_tags([*old, *new])


def name_key(name: str) -> str:
    """What two spellings of one name have in common."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())
