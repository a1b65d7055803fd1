"""Old contexts made again: joined from their stored parts, or built anew by their engine from what they were
built from; two of them compared; and what a model would have seen of a turn under another engine or
window."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import SequenceMatcher
from typing import Annotated, Literal, NotRequired, cast

from pydantic import Field
from typing_extensions import TypedDict

from holdfast.context import blobs, calibration, manifest
from holdfast.context.account import too_large
from holdfast.context.assembly import Assembly
from holdfast.context.history import MOST_MESSAGES, History, message_by_ref
from holdfast.context.host import HostedEngine
from holdfast.context.inputs import Inputs
from holdfast.context.inputs import load as load_inputs
from holdfast.context.manifest import JOINT, Manifest, ManifestOut, Section, Stored, as_json, unpack
from holdfast.context.messages import (
    Message,
    SystemMessage,
    context_digest,
    decode,
    encode,
    whole_digest,
    wire,
)
from holdfast.context.request import Built
from holdfast.context.summaries import identifiers, rendered
from holdfast.context.tokens import Estimator
from holdfast.errors import NotFound
from holdfast.log import SYSTEM, Session, Store, Threads, Tx, entries
from holdfast.records import record


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
class Rebuilt:
    """A context that its engine built anew, and what was sent; `difference` says where they part, if they
    do."""

    manifest: Manifest
    messages: tuple[Message, ...]
    sent: tuple[Message, ...]
    difference: str | None = None

    @property
    def identical(self) -> bool:
        return self.difference is None

    @property
    def digest(self) -> str:
        return whole_digest(self.messages)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A turn as it was sent, and as it would have been; `refused` if it would not have been sent at all.

    `facts` are exact names of what was said before, as many as a context should hold: how many of them did,
    and how many would.
    """

    before: Manifest
    after: Manifest
    sent: tuple[Message, ...]
    messages: tuple[Message, ...]
    refused: str | None
    facts: tuple[str, ...]

    @property
    def facts_kept(self) -> tuple[int, int]:
        return _held(self.facts, self.sent), _held(self.facts, self.messages)

    def steps(self) -> list[tuple[str, Message]]:
        """The messages of both in order: kept (`=`), only then (`-`), only now (`+`)."""
        old, new = [encode(m) for m in self.sent], [encode(m) for m in self.messages]
        found: list[tuple[str, Message]] = []
        for tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            if tag == "equal":
                found += [("=", m) for m in self.messages[c:d]]
            else:
                found += [("-", m) for m in self.sent[a:b]] + [("+", m) for m in self.messages[c:d]]
        return found


@record
class _Tokens(TypedDict):
    before: int
    after: int


@record
class _Facts(_Tokens):
    of: int


class _Step(TypedDict):
    """A message as it was sent or would be; calls, call ids and pictures stand beside it where it has any."""

    op: Annotated[Literal["=", "-", "+"], Field(description="Kept, only then, only now.")]
    role: str
    kind: str
    content: str
    trust: str
    source: str


@record
class WhatIfOut(TypedDict):
    before: NotRequired[ManifestOut]
    after: NotRequired[ManifestOut]
    refused: NotRequired[str | None]
    tokens: NotRequired[_Tokens]
    facts: NotRequired[_Facts]
    messages: NotRequired[list[_Step]]
    turns: NotRequired[list[dict[str, object]]]


def what_if_json(found: WhatIf) -> WhatIfOut:
    """For the wire: both accounts, and the messages of both in order with whether each is kept, gone or
    new."""
    kept, would = found.facts_kept
    return {
        "before": as_json(found.before),
        "after": as_json(found.after),
        "refused": found.refused,
        "tokens": {"before": found.before.used, "after": found.after.used},
        "facts": {"before": kept, "after": would, "of": len(found.facts)},
        "messages": [_step(op, message) for op, message in found.steps()],
    }


def _step(op: str, message: Message) -> _Step:
    return cast("_Step", {"op": op, **wire(message), "trust": message.trust.label, "source": message.source})


def difference(one: Sequence[Message], other: Sequence[Message]) -> str | None:
    """Where two contexts part, to the character; None if every byte is the same."""
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if encode(a) == encode(b):
            continue
        if a.kind != b.kind or a.text == b.text:
            return f"messages[{index}] is {a.kind} from {a.source}, and {b.kind} from {b.source}"
        at = next((i for i, (x, y) in enumerate(zip(a.text, b.text, strict=False)) if x != y), None)
        at = min(len(a.text), len(b.text)) if at is None else at
        shown = [repr(m.text[max(0, at - 10) : at + 30]) for m in (a, b)]
        return f"messages[{index}] ({a.kind}) parts at character {at:,}: {shown[0]} and {shown[1]}"
    if len(one) != len(other):
        return f"one has {len(one):,} messages and the other {len(other):,}"
    return None


def shared_tokens(before: Sequence[Message], after: Sequence[Message], estimate: Estimator) -> int:
    """Tokens of a context that repeat the one before it, from its beginning on, message by message."""
    pairs = zip(before, after, strict=False)
    same = next((i for i, (a, b) in enumerate(pairs) if encode(a) != encode(b)), min(len(before), len(after)))
    return estimate.messages(after[:same])


def _held(facts: Sequence[str], messages: Sequence[Message]) -> int:
    text = "\n".join(m.text for m in messages)
    return sum(fact in text for fact in facts)


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


FACT_TOKENS = 200_000
MOST_TURNS = 500


@dataclass(frozen=True, slots=True)
class Row:
    """One turn of many: tokens, the share of them that repeats the turn before from the beginning on, and the
    facts that are still there, each as it was and as it would have been."""

    turn: int
    model: str
    tokens: tuple[int, int]
    reuse: tuple[float, float] | None
    facts: tuple[int, int]
    of_facts: int
    refused: str | None

    def json(self) -> dict[str, object]:
        return {**asdict(self), "ofFacts": self.of_facts}


class Hindsight:
    """Looks back at the contexts of a store."""

    def __init__(
        self,
        store: Store,
        threads: Threads,
        assembly: Assembly,
        history: History,
        engine: Callable[[str, str | None], HostedEngine],
    ) -> None:
        self._store = store
        self._threads = threads
        self._assembly = assembly
        self._history = history
        self._engine_named = engine

    async def rebuild(self, session: Session, number: int | None = None, call: int | None = None) -> Rebuilt:
        """A stored context built anew by its engine, from the log as it was and all else that it was built
        from, and held against what was sent. One that cannot be built the same says why."""
        stored, sent, past = await self._threads(self._inputs_of, session, number, call)
        engine = self._engine_named(stored.manifest.engine, session.agent_id)
        built = await self._built_anew(engine, past)
        found = difference(sent.messages, built.messages)
        if found is not None:
            again = await self._built_anew(engine, past)
            shaky = difference(built.messages, again.messages)
            if shaky is not None:
                found = f"engine {engine.id} is not deterministic, two builds differ: {shaky}"
        return Rebuilt(stored.manifest, built.messages, tuple(sent.messages), found)

    async def what_if(
        self,
        session: Session,
        number: int,
        *,
        engine: str | None = None,
        window: int | None = None,
        model: str | None = None,
    ) -> WhatIf:
        """What the model would have seen of a turn's last call under another engine, window or model. No
        model is asked, and nothing is written."""
        stored, sent, last = await self._threads(self._inputs_of, session, number, None)
        _, _, first = await self._threads(self._inputs_of, session, number, 0)
        hosted = self._engine_named(engine or stored.manifest.engine, session.agent_id)
        facts = replace(
            last.request.model,
            name=model or last.request.model.name,
            window=window or last.request.model.window,
        )
        factor = last.factor if model is None else await self._threads(self._factor, model)
        changed = replace(
            last,
            request=replace(last.request, model=facts),
            files=first.files,
            opened=False,
            factor=factor,
            engine_state=last.engine_state if hosted.id == stored.manifest.engine else None,
        )
        built = await self._built_anew(hosted, changed)
        refusal = too_large(built.manifest, least_answer=changed.request.budgets.answer)
        names = await self._threads(self._facts, session, last)
        return WhatIf(
            stored.manifest,
            built.manifest,
            tuple(sent.messages),
            built.messages,
            None if refusal is None else refusal.message,
            names,
        )

    async def _built_anew(self, engine: HostedEngine, inputs: Inputs) -> Built:
        request = inputs.request
        prepared = await self._threads(self._assembly.prepare, request, engine.info, inputs)
        result = await engine.assemble(self._assembly.params(request, prepared))
        built, _ = await self._threads(self._assembly.laid_out, request, prepared, result, engine.info)
        return built

    def _inputs_of(
        self, session: Session, number: int | None, call: int | None
    ) -> tuple[manifest.Stored, Replay, Inputs]:
        with self._store.read(SYSTEM) as tx:
            stored = manifest.load(tx, session.id, number, call)
            sent = replay(tx, stored)
            return stored, sent, load_inputs(tx, session, stored, sent.messages)

    def _factor(self, model: str) -> float:
        with self._store.read(SYSTEM) as tx:
            return calibration.get(tx, model).factor

    def _facts(self, session: Session, inputs: Inputs) -> tuple[str, ...]:
        """Exact names of what was said in a session before a context, the most said ones."""
        with self._store.read(session.reader) as tx:
            whole = replace(inputs.state, floor=0, cut=0)
            said = self._history.newest(tx, whole, {}, budget=FACT_TOKENS, past=inputs.past)
        return identifiers(rendered(said))

    async def what_ifs(
        self,
        session: Session,
        first: int,
        last: int,
        *,
        engine: str | None = None,
        window: int | None = None,
        model: str | None = None,
    ) -> AsyncIterator[Row]:
        """The same for a range of turns, each with what it shares with the one before it; turns whose
        contexts are no longer stored are left out."""
        before: tuple[tuple[Message, ...], tuple[Message, ...]] | None = None
        for number in range(first, min(last, first + MOST_TURNS - 1) + 1):
            try:
                found = await self.what_if(session, number, engine=engine, window=window, model=model)
            except NotFound:
                before = None
                continue
            yield _row(found, before)
            before = (found.sent, found.messages)


def _row(found: WhatIf, before: tuple[tuple[Message, ...], tuple[Message, ...]] | None) -> Row:
    estimate = Estimator()
    reuse = None
    if before is not None:
        pairs = zip(before, (found.sent, found.messages), strict=True)
        then, now = (shared_tokens(a, b, estimate) / max(1, estimate.messages(b)) for a, b in pairs)
        reuse = (round(then, 4), round(now, 4))
    return Row(
        found.before.number,
        found.after.model,
        (found.before.used, found.after.used),
        reuse,
        found.facts_kept,
        len(found.facts),
        found.refused,
    )
