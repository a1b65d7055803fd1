"""Old contexts built again by their engines, as they were or as they would have been. No model is asked
for it, and nothing is written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass, replace

from holdfast.context import calibration, manifest
from holdfast.context.account import too_large
from holdfast.context.assembly import Assembly
from holdfast.context.history import History
from holdfast.context.host import HostedEngine
from holdfast.context.inputs import Inputs
from holdfast.context.inputs import load as load_inputs
from holdfast.context.messages import Message
from holdfast.context.replay import Rebuilt, Replay, WhatIf, difference, replay, shared_tokens
from holdfast.context.request import Built
from holdfast.context.summaries import identifiers, rendered
from holdfast.context.tokens import Estimator
from holdfast.errors import NotFound
from holdfast.log import SYSTEM, Session, Store, Threads

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
