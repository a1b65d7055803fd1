"""One question to the models: what was tried so far, what is tried next, and what a surface is told."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, Protocol

from holdfast.agents.models.catalogue import Resolved
from holdfast.agents.models.credentials import RESTING, Credential, Credentials
from holdfast.agents.models.failures import Attempt, after, pause_ms
from holdfast.agents.models.fit import fitted, read_back
from holdfast.agents.models.lessons import Lesson, applied, lesson
from holdfast.agents.models.types import (
    FailureReason,
    Model,
    ModelAbout,
    ModelEvent,
    ModelFailure,
    ModelRef,
    ModelReply,
    ModelRequest,
    Restarted,
)
from holdfast.clock import Clock

log = logging.getLogger(__name__)

Build = Callable[[ModelAbout], Awaitable[ModelRequest]]
Sleep = Callable[[float], Awaitable[None]]
OnEvent = Callable[[ModelEvent], None]
MOST_ATTEMPTS: Final = 24
_UNSURE: Final = frozenset(("network", "cut_off", "overloaded", "not_found"))


@dataclass(frozen=True, slots=True)
class Answered:
    """A reply, the model that gave it, and every call that was made for it, the last being its own."""

    reply: ModelReply
    about: ModelAbout
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class Pace:
    """Time as the room is given it."""

    clock: Clock
    sleep: Sleep
    spread: Callable[[], float]


class Room(Protocol):
    """What a call needs of the models room."""

    credentials: Credentials

    async def met(self, ref: ModelRef) -> Resolved: ...
    def unsure(self, resolved: Resolved) -> None: ...
    async def learn(self, resolved: Resolved, lessons: Sequence[Lesson]) -> None: ...
    def credentials_for(self, resolved: Resolved, agent_id: str) -> list[Credential | None]: ...
    def credential_failed(self, credential: Credential, failed: ModelFailure) -> None: ...
    async def renewed(
        self, resolved: Resolved, credential: Credential, *, refused: bool = False
    ) -> Credential | None: ...
    def model(self, resolved: Resolved, credential: Credential | None, session_key: str | None) -> Model: ...


class Exhausted(Exception):
    """One model was asked in every way there is; its last failure says how it ended."""

    def __init__(self, failure: ModelFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class _Taught(Exception):
    """A refusal told what the model's server takes."""

    def __init__(self, taught: Lesson) -> None:
        super().__init__(taught.fact)
        self.lesson = taught


def _counted(attempts: Sequence[Attempt]) -> Iterator[str]:
    """Each attempt in a word; those in a row that ended alike, once."""
    for said, alike in groupby(map(str, attempts)):
        count = sum(1 for _ in alike)
        yield said if count == 1 else f"{said} ({count} times)"


class Answering:
    def __init__(
        self,
        room: Room,
        pace: Pace,
        build: Build,
        agent_id: str,
        on_event: OnEvent,
        session_key: str | None,
    ) -> None:
        self._room = room
        self._pace = pace
        self._build = build
        self._agent_id = agent_id
        self._on_event = on_event
        self._session_key = session_key
        self._attempts: list[Attempt] = []
        self._said = ""
        self._broken: FailureReason | None = None
        self._learned: list[Lesson] = []

    async def model(self, ref: ModelRef) -> Answered:
        """Ask one model; `Exhausted` when it brought no answer.

        A request that its server refused for a known cause is built anew with what the refusal taught, and
        asked again, once for each such fact. What was learned is remembered once it has helped; a window at
        once, since the server said it in so many words.
        """
        self._learned.clear()
        while True:
            try:
                resolved = await self._room.met(ref)
                credentials = self._room.credentials_for(resolved, self._agent_id)
            except ModelFailure as failed:
                self._note(ref, None, failed, self._pace.clock.now(), 0)
                raise Exhausted(failed) from failed
            resolved = replace(resolved, about=applied(resolved.about, self._learned))
            try:
                reply = await self._with_any(resolved, await self._build(resolved.about), credentials)
            except _Taught as refusal:
                self._learned.append(refusal.lesson)
                if refusal.lesson.fact == "window":
                    await self._room.learn(resolved, [refusal.lesson])
                continue
            await self._room.learn(resolved, self._learned)
            if not resolved.settled:
                self._room.unsure(resolved)
            return Answered(reply, resolved.about, tuple(self._attempts))

    async def _with_any(
        self, resolved: Resolved, request: ModelRequest, credentials: Sequence[Credential | None]
    ) -> ModelReply:
        """Ask with each credential until one brings an answer."""
        for place, credential in enumerate(credentials):
            others = len(credentials) - place - 1
            try:
                return await self._patiently(resolved, request, credential, others)
            except Exhausted as gone:
                if not others or gone.failure.reason not in RESTING:
                    raise
        raise AssertionError("there is always one credential, if only none")

    async def _patiently(
        self, resolved: Resolved, request: ModelRequest, credential: Credential | None, others: int
    ) -> ModelReply:
        """Ask with one credential until it answers, or nothing is left to wait for."""
        tries = waited = 0
        credential = await self._renewed(resolved, credential) or credential
        fresh = False
        while True:
            model = self._room.model(resolved, credential, self._session_key)
            started = self._pace.clock.now()
            try:
                reply = await self._once(model, request)
            except ModelFailure as failed:
                tries += 1
                self._note(model.about.ref, credential, failed, started, waited)
                if failed.reason in _UNSURE:
                    self._room.unsure(resolved)
                if (taught := self._taught(failed, resolved.about)) is not None:
                    raise _Taught(taught) from failed
                again = await self._renewed(resolved, credential, failed) if not fresh else None
                if again is not None:
                    credential, fresh = again, True
                    continue
                step = after(failed, tries, others)
                if step == "raise":
                    raise
                if step != "again" or len(self._attempts) >= MOST_ATTEMPTS:
                    if credential is not None and failed.reason in RESTING:
                        self._room.credential_failed(credential, failed)
                    raise Exhausted(failed) from failed
                waited = pause_ms(failed, tries, self._pace.spread())
                await self._pace.sleep(waited / 1000)
                continue
            self._note(model.about.ref, credential, None, started, waited)
            if credential is not None:
                self._room.credentials.succeeded(credential)
            return reply

    def _taught(self, failed: ModelFailure, about: ModelAbout) -> Lesson | None:
        """What a refusal teaches; each fact once, so that asking again has an end."""
        found = lesson(failed, about)
        known = {one.fact for one in self._learned}
        return None if found is None or found.fact in known else found

    async def _renewed(
        self, resolved: Resolved, credential: Credential | None, failed: ModelFailure | None = None
    ) -> Credential | None:
        """A login with another token than this one: before its end, or when it was refused."""
        if credential is None or not credential.refreshable or (failed and failed.reason != "auth"):
            return None
        found = await self._room.renewed(resolved, credential, refused=failed is not None)
        return found if found is not None and found.secret != credential.secret else None

    async def _once(self, model: Model, request: ModelRequest) -> ModelReply:
        """One call. Where something was shown of one before it that failed, the surface hears first that this
        does not count; what was shown of the last one stands."""
        if self._broken is not None:
            self._on_event(Restarted(self._broken))
            self._broken = None
        reply: ModelReply | None = None
        shown = False
        fit = model.about.fit
        spelled = fit.tools == "prompt" and bool(request.tools)
        events = read_back(model.stream(fitted(request, fit)), calls=spelled)
        try:
            async for event in events:
                self._on_event(event)
                if isinstance(event, ModelReply):
                    reply = event
                shown = True
        except ModelFailure as failed:
            self._broken = failed.reason if shown else None
            raise
        finally:
            await events.aclose()
        if reply is None:
            raise ModelFailure("the model ended without a reply", "bad_response", ref=model.about.ref)
        return reply

    def _note(
        self,
        ref: ModelRef,
        credential: Credential | None,
        failed: ModelFailure | None,
        started: int,
        waited: int,
    ) -> None:
        attempt = Attempt(
            ref=ref,
            credential=credential.id if credential is not None else None,
            reason=failed.reason if failed is not None else None,
            message=failed.message if failed is not None else "",
            partial=failed.partial if failed is not None else "",
            at=started,
            took_ms=self._pace.clock.now() - started,
            waited_ms=waited,
        )
        self._attempts.append(attempt)
        if failed is not None:
            self._said = failed.partial or self._said
            log.warning("%s: %s", attempt, attempt.message, extra={"data": {"model": str(ref)}})
        elif len(self._attempts) > 1:
            log.info("%s, attempt %d", attempt, len(self._attempts))

    def summed_up(self, last: ModelFailure | None) -> ModelFailure:
        """The last failure, with everything that was tried in its message."""
        if last is None:
            return ModelFailure("no model was named", "not_configured", hint="Set agents.defaults.model.")
        tried = "; ".join(_counted(self._attempts))
        return ModelFailure(
            last.message if len(self._attempts) == 1 else f"{last.message} (tried {tried})",
            last.reason,
            hint=last.hint,
            retry_after_ms=last.retry_after_ms,
            partial=last.partial or self._said,
            ref=last.ref,
            detail=last.detail,
        )
