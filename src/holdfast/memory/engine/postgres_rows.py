"""Documents and filters as the PostgreSQL index writes them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.memory.documents import Document, Filter
from holdfast.memory.engine.postings import LONGEST, MOST_FREQUENT, term_keys
from holdfast.memory.engine.symbols import Group

_FIELDS = (
    *("id", "text", "topic", "task", "session", "speaker", "writer", "at", "curated", "thread"),
    *("ordinal", "position", "path", "from_line", "to_line", "payload"),
)
SELECT = (
    f"select d.num, {', '.join(f'd.{name}' for name in _FIELDS)},"
    " g.audience, g.agent, g.collection, g.source, g.spaces from docs d join groups g on g.code = d.grp"
)
COPY = f"copy docs (num, grp, {', '.join(_FIELDS)}, length, terms, freqs) from stdin"
_LISTS = (
    *(("topics", "topic"), ("tasks", "task"), ("sessions", "session")),
    *(("speakers", "speaker"), ("writers", "writer")),
)
_COARSE = (
    *(("audiences", "audience"), ("agents", "agent")),
    *(("collections", "collection"), ("sources", "source")),
)


@dataclass(frozen=True, slots=True)
class Words:
    """The terms of one document: different keys, how often each stands there, and the length."""

    keys: list[int]
    frequencies: list[int]
    length: int


def words_of(terms: Sequence[str]) -> Words:
    """Cut to what the embedded index can tell apart, so that both weigh alike."""
    counts = Counter(terms)
    frequencies = [min(count, MOST_FREQUENT) for count in counts.values()]
    return Words(signed_keys(counts), frequencies, min(len(terms), LONGEST))


def signed_keys(terms: Iterable[str]) -> list[int]:
    """Keys of terms as PostgreSQL's signed numbers."""
    found: list[int] = term_keys(terms).view(np.int64).tolist()
    return found


def row(num: int, group: int, document: Document, words: Words) -> list[Any]:
    """One document for `COPY`."""
    payload = json.dumps(document.payload) if document.payload else "{}"
    values = [payload if name == "payload" else getattr(document, name) for name in _FIELDS]
    fields = [clean(value) if isinstance(value, str) else value for value in values]
    return [num, group, *fields, words.length, listed(words.keys), listed(words.frequencies)]


def document(found: Sequence[Any]) -> Document:
    """A row of `SELECT`, without its number."""
    values = dict(zip(_FIELDS, found[: len(_FIELDS)], strict=True))
    audience, agent, collection, source, spaces = found[len(_FIELDS) :]
    values["payload"] = json.loads(values["payload"])
    values |= {"audience": audience, "agent": agent, "collection": collection, "source": source}
    return Document(**values, spaces=frozenset(spaces))


def clean(text: str) -> str:
    """PostgreSQL holds no NUL."""
    return text.replace("\x00", "\ufffd")


def group_key(group: Group) -> str:
    return json.dumps([group.audience, group.agent, group.collection, group.source, sorted(group.spaces)])


def listed(numbers: Iterable[int]) -> str:
    """An array as PostgreSQL reads it; the driver's own way takes many times as long."""
    return f"{{{','.join(map(str, numbers))}}}"


def literal(codes: NDArray[Any]) -> str:
    """A vector as pgvector reads it."""
    return f"[{','.join(map(str, codes.tolist()))}]"


def coarse(wanted: Filter) -> tuple[str, dict[str, Any]]:
    """The condition on `groups` over which BM25 counts."""
    values = {column: _names(getattr(wanted, name)) for name, column in _COARSE}
    parts = [f"{column} = any(%({column})s)" for column, value in values.items() if value is not None]
    if wanted.spaces is not None:
        parts.append("spaces && %(spaces)s::text[]")
    return _joined(parts), {**values, "spaces": _names(wanted.spaces)}


def fine(wanted: Filter, groups: Sequence[int] | None) -> tuple[str, dict[str, Any]]:
    """The whole filter as a condition on `docs d`; `groups` are what the coarse part allows, if not all."""
    values: dict[str, Any] = {column: _names(getattr(wanted, name)) for name, column in _LISTS}
    parts = [
        f"d.{column} = any(%({column})s::text[])" for column, value in values.items() if value is not None
    ]
    bounds = {
        "groups": (None if groups is None else listed(groups), "d.grp = any(%(groups)s::int[])"),
        "curated": (wanted.curated, "d.curated = %(curated)s"),
        "since": (wanted.since, "d.at >= %(since)s"),
        "until": (wanted.until, "d.at < %(until)s"),
        "chatter_since": (wanted.chatter_since, "(d.curated or d.at >= %(chatter_since)s)"),
        "exclude": (_names(wanted.exclude or None), "d.id <> all(%(exclude)s::text[])"),
    }
    for name, (value, condition) in bounds.items():
        values[name] = value
        if value is not None:
            parts.append(condition)
    return _joined(parts), values


def _names(names: Iterable[str] | None) -> list[str] | None:
    return None if names is None else sorted(clean(name) for name in names)


def _joined(parts: Sequence[str]) -> str:
    return " and ".join(parts) or "true"
