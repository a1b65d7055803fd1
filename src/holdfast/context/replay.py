"""Old contexts made again, byte by byte, and two of them compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast.context import blobs
from holdfast.context.history import MOST_MESSAGES, message_by_ref
from holdfast.context.manifest import JOINT, Manifest, Section, Stored, unpack
from holdfast.context.messages import Message, SystemMessage, decode, text_digest, whole_digest
from holdfast.log import Tx, entries


@dataclass(frozen=True, slots=True)
class Replay:
    """A context made again from the log and the stored parts; `identical` if its digest is the same."""

    manifest: Manifest
    messages: list[Message]
    tools: str | None
    digest: str

    @property
    def identical(self) -> bool:
        return self.digest == self.manifest.digest


@dataclass(frozen=True, slots=True)
class Diff:
    """What changed from one context to another."""

    added: tuple[Section, ...]
    removed: tuple[Section, ...]
    changed: tuple[tuple[Section, Section], ...]
    kept_messages: int
    dropped_messages: int
    new_messages: int
    tokens: int


def replay(tx: Tx, stored: Stored) -> Replay:
    """Make a stored context again. Raises `NotFound` if retention has erased a part of it."""
    refs = unpack(tx, stored.refs)
    hashes = [ref[2:] for ref in refs if ref.startswith("b:")]
    wanted = [*stored.system, *hashes, *([stored.tools] if stored.tools else [])]
    contents = blobs.get_many(tx, wanted)
    messages: list[Message] = []
    if stored.system:
        messages.append(SystemMessage(text=JOINT.join(contents[h] for h in stored.system)))
    named = _entries(tx, [ref[2:] for ref in refs if ref.startswith("e:")])
    messages += [decode(contents[ref[2:]]) if ref.startswith("b:") else named[ref[2:]] for ref in refs]
    tools = None if stored.tools is None else contents[stored.tools]
    return Replay(stored.manifest, messages, tools, context_digest(messages, tools))


def context_digest(messages: Sequence[Message], tools: str | None) -> str:
    return text_digest(f"{whole_digest(messages)}\n{tools or ''}")


def diff(tx: Tx, before: Stored, after: Stored) -> Diff:
    """Sections by name, history by reference."""
    old = {_key(s): s for s in before.manifest.sections}
    new = {_key(s): s for s in after.manifest.sections}
    changed = ((old[k], new[k]) for k in new if k in old and not _same(old[k], new[k]))
    old_refs, new_refs = unpack(tx, before.refs), unpack(tx, after.refs)
    kept = set(old_refs) & set(new_refs)
    return Diff(
        added=tuple(s for k, s in new.items() if k not in old),
        removed=tuple(s for k, s in old.items() if k not in new),
        changed=tuple(changed),
        kept_messages=len(kept),
        dropped_messages=len(set(old_refs) - kept),
        new_messages=len(set(new_refs) - kept),
        tokens=after.manifest.used - before.manifest.used,
    )


def _key(section: Section) -> tuple[str, str]:
    return section.place, section.name


def _same(one: Section, other: Section) -> bool:
    if one.hash is None or other.hash is None:
        return (one.chars, one.count) == (other.chars, other.count)
    return one.hash == other.hash


def _entries(tx: Tx, refs: Iterable[str]) -> dict[str, Message]:
    """The messages of log references, read in bulk; only corrected entries need a look of their own."""
    wanted = list(refs)[:MOST_MESSAGES]
    known = {str(e.id): e for e in entries.get_many(tx, list({ref.partition("@")[0] for ref in wanted}))}
    return {ref: message_by_ref(tx, ref, known) for ref in wanted}
