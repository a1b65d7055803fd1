"""What topics and tasks have in common: status, priority, snooze, due date, tags, digest."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar

import sqlalchemy as sa

from holdfast.board.spaces import check_color
from holdfast.board.tags import clean_tags
from holdfast.clock import Millis
from holdfast.errors import InvalidInput
from holdfast.text import clean_text

S = TypeVar("S", bound=StrEnum)

MAX_PAGE: Final = 500
MAX_OFFSET: Final = 10_000
MAX_TITLE: Final = 200
MAX_TEXT: Final = 20_000
LAST_MOMENT: Final = 253_402_300_799_999
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_CURSOR: Final = re.compile(r"(-?[0-9]{1,18})~([A-Za-z0-9._-]{1,128})")


class Priority(StrEnum):
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class CreatedBy(StrEnum):
    USER = "user"
    CLASSIFIER = "classifier"
    IMPORT = "import"


class TopicStatus(StrEnum):
    ACTIVE = "active"
    TODO = "todo"
    DOING = "doing"
    BLOCKED = "blocked"
    DONE = "done"
    SNOOZED = "snoozed"
    ARCHIVED = "archived"


class TaskStatus(StrEnum):
    TODO = "todo"
    DOING = "doing"
    BLOCKED = "blocked"
    DONE = "done"


PRIORITIES: Final = {one.value: one for one in Priority}
CREATORS: Final = {one.value: one for one in CreatedBy}


@dataclass(frozen=True, slots=True)
class Keyset:
    """A place in a listing that is ordered by a number and then by id."""

    number: int
    id: str

    def __str__(self) -> str:
        return f"{self.number}~{self.id}"

    @classmethod
    def parse(cls, text: str) -> Keyset:
        match = _CURSOR.fullmatch(text)
        if match is None:
            raise InvalidInput(
                f"not a cursor: {text[:64]!r}",
                code="bad_cursor",
                hint="Send back the X-Next-Cursor header of the previous page unchanged.",
            )
        return cls(int(match[1]), match[2])

    def before(self, number: sa.Column[int], id_: sa.Column[str]) -> sa.ColumnElement[bool]:
        """What comes next in an ascending listing."""
        return sa.tuple_(number, id_) > sa.tuple_(self.number, self.id)

    def after(self, number: sa.Column[int], id_: sa.Column[str]) -> sa.ColumnElement[bool]:
        """What comes next in a descending listing."""
        return sa.tuple_(number, id_) < sa.tuple_(self.number, self.id)


def chosen(kind: type[S], value: str) -> S:
    """The value as one of its kind."""
    try:
        return kind(value)
    except ValueError:
        names = ", ".join(kind)
        raise InvalidInput(f"not one of {names}: {value[:40]!r}", code="bad_value") from None


def check_id(id_: str) -> str:
    if not _ID.fullmatch(id_):
        raise InvalidInput(
            f"not an id: {id_[:40]!r}", code="bad_id", hint="Use up to 128 letters, digits, '.', '_' and '-'."
        )
    return id_


def clean_title(text: str, what: str) -> str:
    title = " ".join(clean_text(text).split())
    if not title or len(title) > MAX_TITLE:
        raise InvalidInput(f"a {what} has 1 to {MAX_TITLE} characters", code="bad_name")
    return title


def clean_fields(fields: Mapping[str, Any], allowed: frozenset[str]) -> dict[str, Any]:
    """The fields as they are stored. Unknown ones are a programming error, not a caller's."""
    unknown = fields.keys() - allowed
    if unknown:
        raise ValueError(f"not fields that may be set: {sorted(unknown)}")
    return {name: _CLEAN[name](value) if name in _CLEAN else value for name, value in fields.items()}


def is_snoozed(snoozed_until: int | None, now: int) -> bool:
    return snoozed_until is not None and snoozed_until > now


def only_digest(fields: Mapping[str, Any]) -> bool:
    """Such a change is not the user's: it must not move a topic up in any list."""
    return fields.keys() <= {"digest", "digest_updated_at"}


def page_size(limit: int) -> int:
    return max(1, min(limit, MAX_PAGE))


def _text(value: str | None) -> str | None:
    if value is None:
        return None
    text = clean_text(value)
    if len(text) > MAX_TEXT:
        raise InvalidInput(f"a text has at most {MAX_TEXT} characters", code="text_too_long")
    return text


def _moment(value: int | None) -> Millis | None:
    if value is not None and not 0 <= value <= LAST_MOMENT:
        raise InvalidInput("a time lies between 1970 and 9999", code="bad_time")
    return None if value is None else Millis(value)


_CLEAN: Final[dict[str, Callable[[Any], Any]]] = {
    "color": check_color,
    "description": _text,
    "digest": _text,
    "tags": clean_tags,
    "priority": lambda value: chosen(Priority, value or Priority.MEDIUM),
    "snoozed_until": _moment,
    "due_at": _moment,
    "digest_updated_at": _moment,
    "pinned": bool,
}
