"""The account of one built context: every section with its source, trust and size, and the way back to
its exact bytes."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Final, Literal

import sqlalchemy as sa
from pydantic import Field
from typing_extensions import TypedDict

from holdfast.clock import Millis
from holdfast.context import blobs
from holdfast.context.blobs import Blobs
from holdfast.context.messages import CarrierMessage, Message, SystemMessage, digest, encode
from holdfast.context.tables import manifests as table
from holdfast.errors import HoldfastError, NotFound
from holdfast.log import FOR_OWNER, Audience, Session, Tx
from holdfast.log.statements import Insert
from holdfast.records import Iso, record
from holdfast.text import clean_json

Place = Literal["tools", "system", "summary", "history", "carrier", "input", "pending"]

FANOUT: Final = 64
JOINT: Final = "\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One part of a context. `stable` parts stand before the carrier and are meant to repeat.

    `audience` is who may read it: of a run of messages, who may read all of them.
    """

    name: str
    place: Place
    source: str
    trust: str
    chars: int
    tokens: int
    stable: bool
    audience: Audience = FOR_OWNER
    hash: str | None = None
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The account of one call. `refused` says why the context was not sent, if it was not. `sent_as` names
    what was changed in form alone when it was sent, since the model's server takes no other; the same form
    makes the same bytes of it again."""

    turn_id: str
    call: int
    session_id: str
    session_key: str
    number: int
    engine: str
    model: str
    window: int
    budget: int
    used: int
    raw_tokens: int
    revision: int
    digest: str
    sections: tuple[Section, ...]
    warnings: tuple[str, ...] = ()
    refused: str | None = None
    sent_as: tuple[str, ...] = ()
    created_at: Millis

    @property
    def stable_tokens(self) -> int:
        return sum(s.tokens for s in self.sections if s.stable)


@dataclass(frozen=True, slots=True)
class Stored:
    """A manifest as it was stored, with the references from which its messages are made again."""

    manifest: Manifest
    tools: str | None
    system: tuple[str, ...]
    refs: tuple[str, ...]
    carrier: str | None = None
    inputs: Mapping[str, Any] | None = None


def save(
    tx: Tx,
    store: Blobs,
    manifest: Manifest,
    messages: Sequence[Message],
    *,
    tools: str | None,
    system: Sequence[str],
    inputs: Callable[[dict[str, str]], dict[str, Any]] = lambda contents: {},
) -> None:
    """Store a manifest: texts by hash, log entries by reference, long lists in shared pieces. `inputs` gives
    what it was built from, and adds the texts of that."""
    contents: dict[str, str] = {}
    hashes = [blobs.put_text(contents, text) for text in system]
    refs = [ref_of(m, contents) for m in messages if not isinstance(m, SystemMessage)]
    body = {
        "manifest": clean_json(_body(manifest)),
        "tools": None if tools is None else blobs.put_text(contents, tools),
        "system": hashes,
        "refs": pack(refs, contents),
        "carrier": next((digest(m) for m in messages if isinstance(m, CarrierMessage)), None),
        "inputs": clean_json(inputs(contents)) or None,
    }
    store.put(tx, contents)
    row = {
        "turn_id": manifest.turn_id,
        "call": manifest.call,
        "session_id": manifest.session_id,
        "number": manifest.number,
        "digest": manifest.digest,
        "body": body,
        "created_at": manifest.created_at,
    }
    _PUT.one(tx, row)


_PUT = Insert(table, replace=["turn_id", "call"])


def load(tx: Tx, session_id: str, number: int | None = None, call: int | None = None) -> Stored:
    """The manifest of a turn's last call (or of one of its calls); without a number the newest turn's."""
    query = sa.select(table.c.body).where(table.c.session_id == session_id)
    query = query.where(table.c.number > 0 if number is None else table.c.number == number)
    if call is not None:
        query = query.where(table.c.call == call)
    body = tx.conn.execute(query.order_by(table.c.number.desc(), table.c.call.desc()).limit(1)).scalar()
    if body is None:
        what = "no turn" if number is None else f"no turn {number}"
        raise NotFound(f"{what} of this session has a stored context", code="unknown_manifest")
    return _stored(body)


def summary_call(tx: Tx, session_id: str, which: int = 1) -> Stored:
    """The account of a session's newest call that summarised its history, or of one before it."""
    own = (table.c.session_id == session_id, table.c.number == 0)
    query = sa.select(table.c.body).where(*own).order_by(table.c.created_at.desc(), table.c.turn_id.desc())
    body = tx.conn.execute(query.offset(which - 1).limit(1)).scalar()
    if body is None:
        raise NotFound("no such call that summarised this session is stored", code="unknown_manifest")
    return _stored(body)


def first_of_turn(tx: Tx, turn_id: str) -> Stored | None:
    """The manifest of a turn's first call."""
    query = sa.select(table.c.body).where(table.c.turn_id == turn_id, table.c.call == 0)
    body = tx.conn.execute(query).scalar()
    return None if body is None else _stored(body)


def of_turn(tx: Tx, turn_id: str, *, limit: int = 200) -> list[Manifest]:
    """The manifests of a turn's calls, in their order."""
    query = sa.select(table.c.body).where(table.c.turn_id == turn_id).order_by(table.c.call).limit(limit)
    return [_stored(body).manifest for body in tx.conn.execute(query).scalars()]


def pack(refs: Sequence[str], contents: dict[str, str]) -> list[str]:
    """A list of references in shared pieces of `FANOUT`: an appended list reuses all its full pieces."""
    if len(refs) <= FANOUT:
        return list(refs)
    whole = len(refs) - len(refs) % FANOUT
    groups = [
        "g:" + blobs.put_text(contents, json.dumps(refs[start : start + FANOUT], ensure_ascii=False))
        for start in range(0, whole, FANOUT)
    ]
    return pack(groups, contents) + list(refs[whole:])


def unpack(tx: Tx, packed: Sequence[str]) -> list[str]:
    """The list again; one query for each level of pieces."""
    refs = list(packed)
    while groups := [ref[2:] for ref in refs if ref.startswith("g:")]:
        found = blobs.get_many(tx, groups)
        refs = [
            one for ref in refs for one in (json.loads(found[ref[2:]]) if ref.startswith("g:") else [ref])
        ]
    return refs


@record
class SectionOut(TypedDict):
    name: str
    place: Annotated[str, Field(description="tools, system, summary, history, carrier, input or pending.")]
    source: str
    trust: str
    chars: int
    tokens: int
    stable: Annotated[bool, Field(description="It stands before the carrier, and is meant to repeat.")]
    audience: str
    hash: str | None
    count: int


@record
class ManifestOut(TypedDict):
    turnId: str
    call: int
    sessionId: str
    sessionKey: str
    number: int
    engine: str
    model: str
    window: int
    budget: int
    used: int
    stableTokens: int
    revision: int
    digest: str
    sections: list[SectionOut]
    warnings: list[str]
    refused: str | None
    sentAs: list[str]
    createdAt: Iso


def as_json(manifest: Manifest) -> ManifestOut:
    """For the wire: camelCase, with the sums that readers want."""
    from holdfast.clock import iso

    return {
        "turnId": manifest.turn_id,
        "call": manifest.call,
        "sessionId": manifest.session_id,
        "sessionKey": manifest.session_key,
        "number": manifest.number,
        "engine": manifest.engine,
        "model": manifest.model,
        "window": manifest.window,
        "budget": manifest.budget,
        "used": manifest.used,
        "stableTokens": manifest.stable_tokens,
        "revision": manifest.revision,
        "digest": manifest.digest,
        "sections": [_section(section) for section in manifest.sections],
        "warnings": list(manifest.warnings),
        "refused": manifest.refused,
        "sentAs": list(manifest.sent_as),
        "createdAt": iso(manifest.created_at),
    }


def _section(section: Section) -> SectionOut:
    return {
        "name": section.name,
        "place": section.place,
        "source": section.source,
        "trust": section.trust,
        "chars": section.chars,
        "tokens": section.tokens,
        "stable": section.stable,
        "audience": section.audience,
        "hash": section.hash,
        "count": section.count,
    }


def _body(manifest: Manifest) -> dict[str, Any]:
    """`asdict` without its deep copies: every field is a plain value but the sections."""
    body = {name: getattr(manifest, name) for name in _FIELDS}
    body["sections"] = [
        {name: getattr(section, name) for name in _SECTION_FIELDS} for section in manifest.sections
    ]
    return body


_FIELDS: Final = tuple(field.name for field in fields(Manifest))
_SECTION_FIELDS: Final = tuple(field.name for field in fields(Section))


def ref_of(message: Message, contents: dict[str, str]) -> str:
    """How a message is stored: by the entry that it is, else by its exact form, added to the texts."""
    if message.mark is not None:
        return "e:" + message.mark.ref
    text = encode(message)
    hash_ = digest(message)
    contents[hash_] = text
    return "b:" + hash_


def _stored(body: Mapping[str, Any]) -> Stored:
    found = dict(body["manifest"])
    found["sections"] = tuple(Section(**section) for section in found["sections"])
    found["warnings"] = tuple(found["warnings"])
    found["sent_as"] = tuple(found.get("sent_as", ()))
    return Stored(
        Manifest(**found),
        body["tools"],
        tuple(body["system"]),
        tuple(body["refs"]),
        body["carrier"],
        body.get("inputs"),
    )


log = logging.getLogger(__name__)


class PromptLeak(HoldfastError):
    """A part of a prompt that not everyone who hears the reply may read; a fault of ours, never a user's."""

    code = "prompt_leak"


def check(session: Session, sections: Iterable[Section]) -> None:
    """Refuse a context in which anything stands that some hearer of the session may not read."""
    reader = session.reader
    if reader.audiences is None:
        return
    hidden = [one for one in sections if not reader.may_read(one.audience)]
    if hidden:
        named = ", ".join(f"{one.place}/{one.name} ({one.audience})" for one in hidden)
        log.error("the context of %s, heard by %s, held %s", session.key, session.audience, named)
        names = ", ".join(one.name for one in hidden)
        raise PromptLeak(
            f"the prompt held what not everyone in this chat may read: {names}",
            hint="Nothing was sent. Please report this: it is a fault in Holdfast.",
        )
