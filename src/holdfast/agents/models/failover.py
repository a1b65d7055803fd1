"""The models room: which model answers, with which credential, and what is tried when one fails."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from holdfast.agents.models.answering import Answered, Answering, Build, Exhausted, OnEvent, Pace, Sleep
from holdfast.agents.models.catalogue import RECALL, Catalogue, Endpoint, Resolved, plugged_in
from holdfast.agents.models.client import Client
from holdfast.agents.models.credentials import Credential, Credentials
from holdfast.agents.models.dialects import CHAT, Pool, load
from holdfast.agents.models.discovery import Discovery, Found, Row
from holdfast.agents.models.lessons import Lesson, LessonKeeper, Lessons, Remembered
from holdfast.agents.models.logins import EARLY_MS
from holdfast.agents.models.recall_model import RecallModel, Search
from holdfast.agents.models.types import Model, ModelAbout, ModelFailure, ModelRef
from holdfast.agents.models.wire import Echoes
from holdfast.clock import Clock
from holdfast.config import AgentSettings, Config
from holdfast.errors import HoldfastError
from holdfast.home import Home

log = logging.getLogger(__name__)
LOCAL: Final = ("ollama", "lmstudio", "llamacpp")
_FAR: Final = 1 << 62


class Models:
    """One for a home. `config` is read at every call, so that a reload takes effect."""

    def __init__(
        self,
        home: Home,
        config: Callable[[], Config],
        clock: Clock,
        env: Mapping[str, str] = os.environ,
        *,
        sleep: Sleep = asyncio.sleep,
        spread: Callable[[], float] = random.random,
        search: Search | None = None,
        lessons: LessonKeeper | None = None,
        plugged: Callable[[ModelRef], Model | None] = lambda ref: None,
    ) -> None:
        """`plugged` finds the models that plugins bring; they go before others of the same name."""
        self._config = config
        self._plugged = plugged
        self._clock = clock
        self._env = env
        self._pace = Pace(clock, sleep, spread)
        self._pool = Pool()
        self._echoes = Echoes()
        self._search = search
        self.credentials = Credentials(
            home, clock, env, lambda agent: config().agent_dir(agent, home.agent_dir(agent))
        )
        self.discovery = Discovery(self._local_servers)
        self._lessons = Lessons(lessons, clock)

    async def discover(self, *, refresh: bool = False) -> Sequence[Found]:
        """What can be used without any setting. Servers on this machine are asked once for the process."""
        servers = await self.discovery.find(refresh=refresh)
        return (*self._keys(), *servers)

    async def report(self, *, refresh: bool = False) -> list[Row]:
        """Lines for `holdfast doctor`: every place that was looked at, and what was there."""
        servers = await self.discovery.report(refresh=refresh)
        learned = [Row(one.ref.provider, found=True, text=str(one)) for one in await self.learned()]
        return [*self._key_rows(), *servers, *learned]

    async def learned(self) -> list[Remembered]:
        """What refusals taught of models, with when and why."""
        await asyncio.to_thread(self._lessons.refresh)
        return self._lessons.all()

    def about(self, ref: ModelRef) -> ModelAbout:
        """What is known of a model; `ModelFailure` (not_configured) for a provider that is not there."""
        return self.resolve(ref).about

    def choice(self, settings: AgentSettings, override: str | ModelRef | None = None) -> list[ModelRef]:
        """The models to ask, in order: the override or the agent's own, then its fallbacks; where nothing is
        set, the first that was found; where nothing was found, the built-in recall model."""
        named = settings.model
        first = override if override is not None else named.primary
        wanted = [*([first] if first is not None else []), *named.fallbacks]
        refs = [one if isinstance(one, ModelRef) else ModelRef.parse(one) for one in wanted]
        return list(dict.fromkeys(refs)) or [self.default() or RECALL]

    def default(self) -> ModelRef | None:
        """The model when none is set: a configured provider's first, else by a key, else of a local server.

        Nobody is asked here: servers count once `discover` has found them.
        """
        for endpoint in self._catalogue().endpoints():
            if endpoint.models and (endpoint.keyless or self._usable(endpoint)):
                return ModelRef(endpoint.provider, endpoint.models[0].id)
        for found in (*self._keys(), *self.discovery.known):
            for model in found.models[:1]:
                return ModelRef(found.provider, model)
        return None

    async def answer(
        self,
        refs: Sequence[ModelRef],
        build: Build,
        *,
        agent_id: str,
        on_event: OnEvent = lambda event: None,
        session_key: str | None = None,
    ) -> Answered:
        """The first whole answer of these models; `build` is asked once for each, since windows differ.

        A model whose every credential rests is asked after the others. `context_overflow` and `bad_request`
        are raised at once: asking in another way is the caller's affair. When all failed, the last failure is
        raised, with all attempts in its message. `session_key` is where the recall model looks from; without
        one it finds nothing.
        """
        call = Answering(self, self._pace, build, agent_id, on_event, session_key)
        last: ModelFailure | None = None
        for ref in self._ordered(refs, agent_id):
            try:
                return await call.model(ref)
            except Exhausted as gone:
                last = gone.failure
        raise call.summed_up(last)

    async def warm(self, refs: Sequence[ModelRef]) -> None:
        """Load the clients of these models now, off the loop, so that the first turn need not."""
        for ref in refs:
            resolved = await asyncio.to_thread(self.resolve, ref)
            if resolved.api != "recall":
                await load(resolved)

    async def aclose(self) -> None:
        """Give the connections back."""
        await self._pool.aclose()

    def resolve(self, ref: ModelRef) -> Resolved:
        theirs = self._plugged(ref)
        return self._catalogue().resolve(ref) if theirs is None else plugged_in(theirs.about)

    async def met(self, ref: ModelRef) -> Resolved:
        """A model with all that can be known of it before it is asked: its server, if it is on this machine,
        has told of itself, and what was learned is at hand."""
        if self._lessons.is_stale:
            try:
                await asyncio.to_thread(self._lessons.refresh)
            except HoldfastError as error:  # they are learned anew at the price of a refusal
                log.warning("what was learned of models cannot be read: %s", error.message)
        resolved = self.resolve(ref)
        endpoint = resolved.endpoint
        if endpoint.loopback and resolved.api in CHAT:
            await self.discovery.meet(endpoint.provider, endpoint.base_url)
            resolved = self.resolve(ref)
        return resolved

    def unsure(self, resolved: Resolved) -> None:
        """Ask a server again before its next call: it broke off and may be another when it is back, or it
        has loaded a model just now and can tell more of it."""
        self.discovery.forget(resolved.endpoint.provider)

    async def learn(self, resolved: Resolved, lessons: Sequence[Lesson]) -> None:
        """Remember what the refusals of a model taught."""
        if lessons:
            try:
                await asyncio.to_thread(self._lessons.learn, resolved.about.ref, resolved.server, lessons)
            except HoldfastError as error:  # an answer is there, and must not be lost for that
                log.warning("what was learned of %s cannot be kept: %s", resolved.about.ref, error.message)

    def credentials_for(self, resolved: Resolved, agent_id: str) -> list[Credential | None]:
        """The credentials to try, in order; those that rest are left out while there is another."""
        endpoint = resolved.endpoint
        if endpoint.api == "recall":
            return [None]
        found = self._usable(endpoint, agent_id)
        if not found and not endpoint.keyless:
            names = " or ".join(endpoint.env_keys) or f"models.providers.{endpoint.provider}.apiKey"
            raise ModelFailure(
                f"there is no credential for {endpoint.provider}",
                "not_configured",
                hint=f"Set {names}, or add a profile."
                if endpoint.oauth is None
                else f"Run `holdfast login {endpoint.provider}`.",
                ref=resolved.about.ref,
            )
        return list(self._awake(found) or found[:1]) or [None]

    def model(self, resolved: Resolved, credential: Credential | None, session_key: str | None) -> Model:
        theirs = self._plugged(resolved.about.ref)
        if theirs is not None:
            return theirs
        if resolved.api == "recall":
            return RecallModel(self._search, session_key)
        return Client(resolved, credential, self._pool, env=self._env, echoes=self._echoes)

    async def renewed(
        self, resolved: Resolved, credential: Credential, *, refused: bool = False
    ) -> Credential | None:
        """A login that is about to end, or was refused just now, as it is after a refresh."""
        if not credential.refreshable:
            return None
        if not refused and (credential.expires_at or _FAR) - EARLY_MS > self._clock.now():
            return None
        refresh = partial(self.credentials.renewed, credential, resolved.endpoint, refused=refused)
        return await asyncio.to_thread(refresh)

    def credential_failed(self, credential: Credential, failed: ModelFailure) -> None:
        self.credentials.failed(credential, failed.reason, self._config().auth, failed.retry_after_ms)

    def _catalogue(self) -> Catalogue:
        return Catalogue(self._config().models, self.discovery.served, self._lessons.of)

    def _usable(self, endpoint: Endpoint, agent_id: str | None = None) -> list[Credential]:
        config = self._config()
        main = config.default_agent_id
        return self.credentials.usable(endpoint, agent_id or main, main, config.auth)

    def _awake(self, found: Sequence[Credential]) -> list[Credential]:
        now = self._clock.now()
        return [c for c in found if not (self.credentials.rest(c.id).resting(now) or c.expired(now))]

    def _ordered(self, refs: Sequence[ModelRef], agent_id: str) -> Sequence[ModelRef]:
        return refs if len(refs) == 1 else sorted(refs, key=lambda ref: self._rests(ref, agent_id))

    def _rests(self, ref: ModelRef, agent_id: str) -> bool:
        """Whether every credential of a model rests; such a model is asked when nothing else is left."""
        if ref == RECALL:
            return False
        try:
            found = self._usable(self.resolve(ref).endpoint, agent_id)
        except ModelFailure:
            return False
        return bool(found) and not self._awake(found)

    def _keys(self) -> list[Found]:
        return [
            Found(one.provider, "key", found[0].id, (one.default_model,) if one.default_model else ())
            for one in self._catalogue().endpoints()
            if not one.keyless and (found := self._usable(one))
        ]

    def _key_rows(self) -> list[Row]:
        found = {one.provider: one for one in self._keys()}
        return [
            Row(one.provider, one.provider in found, _key_text(one, found.get(one.provider)))
            for one in self._catalogue().endpoints()
            if not one.keyless and (one.default_model or one.provider in found)
        ]

    def _local_servers(self) -> Mapping[str, str]:
        """The usual ones, and whatever else the config has on this machine."""
        config = self._config().models
        known = Catalogue(config).endpoints()
        return {
            one.provider: one.base_url
            for one in known
            if one.provider in LOCAL
            or (one.provider in config.providers and one.loopback and one.api in CHAT and not one.oauth)
        }


def _key_text(endpoint: Endpoint, found: Found | None) -> str:
    if found is None:
        return f"no key ({' or '.join(endpoint.env_keys) or 'apiKey'})"
    return f"credential {found.via}" + (f", would use {found.models[0]}" if found.models else "")
