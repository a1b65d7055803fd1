"""Which embedders there are, in the configured order; the static one is always the last resort.

Every document gets a static vector at once. One better embedder refines in the background, in a vector space
of its own, and serves searches once it has covered nearly all there is: the first of the chain, and the next
only when those before it have failed for long. No text goes to a second vendor while the first answers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

from holdfast.config.memory import Embedding, EmbeddingProvider
from holdfast.errors import HoldfastError, NotFound
from holdfast.memory.deadline import Deadlines, TooSlow
from holdfast.memory.embedders.base import Embedder, Vectors
from holdfast.memory.embedders.hub import HubModel, Manifest, Progress, check_address

log = logging.getLogger(__name__)

ENOUGH: Final = 0.9
PATIENCE: Final = 2.0
QUESTIONS_KEPT: Final = 256
_FIRST_PAUSE: Final = 30.0
_LONGEST_PAUSE: Final = 600.0
_KEYS: Final = {"openai": ("OPENAI_API_KEY",), "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY")}


@dataclass(frozen=True, slots=True)
class Embedded:
    """A question's vector, whose it is, and why an embedder that was preferred did not serve."""

    vector: Vectors
    embedder: Embedder
    fallback: str | None = None


@dataclass(frozen=True, slots=True)
class Trouble:
    """An embedder that does not answer: since when, until when it is left alone, and whether for good."""

    since: float
    until: float
    failures: int
    why: str
    refused: bool = False


def after_failure(before: Trouble | None, now: float, why: str, *, refused: bool) -> Trouble:
    """The trouble after one more failure: a pause of half a minute, doubled each time up to ten minutes."""
    count = 1 if before is None else before.failures + 1
    pause = min(_FIRST_PAUSE * 2 ** min(count - 1, 30), _LONGEST_PAUSE)
    return Trouble(now if before is None else before.since, now + pause, count, why, refused)


def who_may_embed(
    order: Sequence[str], troubles: Mapping[str, Trouble], now: float, failover: float
) -> str | None:
    """Who is asked to embed documents now; None: they wait.

    The first that is not being left alone, unless one before it has failed for less than `failover` seconds:
    a short trouble is waited out, so that a second vendor is neither paid nor told anything. One that refused
    (a wrong key, an unknown model) is not waited for.
    """
    for name in order:
        trouble = troubles.get(name)
        if trouble is None or trouble.until <= now:
            return name
        if not trouble.refused and now - trouble.since < failover:
            return None
    return None


class EmbedderChain:
    """Embedders by preference. `base` is the static one, which cannot fail for want of a network."""

    def __init__(
        self,
        preferred: list[Embedder],
        base: Embedder,
        awaited: Sequence[tuple[int, HubModel]] = (),
        *,
        failover_seconds: float = 600.0,
        local_beside: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`awaited` are models that are not here yet, each with how many preferred ones come before it."""
        self.preferred = preferred
        self.base = base
        self._failover = failover_seconds
        self._local_beside = local_beside
        self._now = now
        self._troubles: dict[str, Trouble] = {}
        self._deadlines = Deadlines()
        self._awaited = list(awaited)
        self._fetching = threading.Lock()
        self._keeping = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], Vectors] = OrderedDict()
        self.questions_kept: Callable[[], int] = lambda: QUESTIONS_KEPT

    def for_documents(self) -> Embedder | None:
        """The one that embeds documents now; None when there is none, or trouble is waited out."""
        names = {one.id.fingerprint: one for one in self.preferred}
        chosen = who_may_embed(list(names), self._troubles, self._now(), self._failover)
        return None if chosen is None else names[chosen]

    @property
    def beside(self) -> list[Embedder]:
        """Those that embed documents too, whoever else does: the local ones, where that was asked for."""
        return [one for one in self.preferred if self._local_beside and one.id.provider == "local"]

    def worked(self, embedder: Embedder) -> None:
        self._troubles.pop(embedder.id.fingerprint, None)

    def failed(self, embedder: Embedder, error: HoldfastError) -> None:
        name, refused = embedder.id.fingerprint, bool(getattr(error, "refused", False))
        before = self._troubles.get(name)
        self._troubles[name] = after_failure(before, self._now(), error.message, refused=refused)
        log.warning("embedder %s/%s: %s", embedder.id.provider, embedder.id.model, error.message)

    def trouble(self, embedder: Embedder) -> Trouble | None:
        return self._troubles.get(embedder.id.fingerprint)

    @property
    def retry_seconds(self) -> float | None:
        """How long until the next that is in trouble is asked again; None when none is."""
        known = [self.trouble(one) for one in self.preferred]
        waits = [one.until - self._now() for one in known if one is not None]
        return max(1.0, min(waits)) if waits else None

    def fetch(self, progress: Progress | None = None) -> None:
        """Bring the awaited models that are wanted; one that cannot be had now is tried again the next time.

        One that stands behind others is wanted when they are in trouble, or when it runs beside them.
        """
        with self._fetching:
            awaited, self._awaited = self._awaited, []
            for place, model in awaited:
                before = self.preferred[:place]
                if before and not self._local_beside and not all(map(self.trouble, before)):
                    self._awaited.append((place, model))
                    continue
                try:
                    made = _from_hub(model, model.fetch(progress))
                except HoldfastError as error:
                    log.warning("a model was not fetched: %s", error.message)
                    self._awaited.append((place, model))
                    continue
                self.preferred = [*self.preferred[:place], made, *self.preferred[place:]]

    def question(
        self,
        text: str,
        covered: Mapping[str, float],
        seconds: float = PATIENCE,
        *,
        plain: str | None = None,
    ) -> Embedded:
        """Embed a question with the first that works, and whose vectors cover the scope, within the time.

        Those that may serve share the time; one that was too slow or failed is left alone for a while. Where
        the first vendor answers and is only behind, the static one serves, and no other vendor is asked.
        Models that run here know one language, and are given `plain`.
        """
        here = plain or text
        reasons: list[str] = []
        deadline = time.monotonic() + seconds
        able = self._able(covered, reasons)
        for place, embedder in enumerate(able):
            left = (deadline - time.monotonic()) / (len(able) - place)
            name = f"{embedder.id.provider}/{embedder.id.model}"
            try:
                words = here if embedder.id.provider == "local" else text
                vector = self._asked(embedder, words, name, left)
                return Embedded(vector, embedder, "; ".join(reasons) or None)
            except HoldfastError as error:
                reasons.append(f"{name}: {error.message}")
        return Embedded(self.base.embed_query(here), self.base, "; ".join(reasons) or None)

    def _able(self, covered: Mapping[str, float], reasons: list[str]) -> list[Embedder]:
        """Those that may embed a question now; why the others may not is added to `reasons`."""
        able: list[Embedder] = []
        vendor_answers = False
        for embedder in self.preferred:
            name = f"{embedder.id.provider}/{embedder.id.model}"
            share = covered.get(embedder.id.fingerprint, 0.0)
            trouble = self.trouble(embedder)
            local = embedder.id.provider == "local"
            if trouble is not None and trouble.until > self._now():
                reasons.append(f"{name}: {trouble.why}")
            elif share >= ENOUGH and (local or not vendor_answers):
                able.append(embedder)
            elif share < ENOUGH and (self.for_documents() is embedder or share or embedder in self.beside):
                reasons.append(f"{name} has embedded {share:.0%} of what is searched")
                vendor_answers |= not local and trouble is None
        return able

    def _asked(self, embedder: Embedder, text: str, name: str, seconds: float) -> Vectors:
        """The question's vector; who asks the same again, or elsewhere, does not pay for it again."""
        key = (embedder.id.fingerprint, text)
        with self._keeping:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        try:
            vector = self._deadlines.within(name, seconds, partial(embedder.embed_query, text))
        except TooSlow:
            raise
        except HoldfastError as error:
            self.failed(embedder, error)
            raise
        self.worked(embedder)
        with self._keeping:
            self._kept[key] = vector
            while len(self._kept) > self.questions_kept():
                self._kept.popitem(last=False)
        return vector


def chain_from(
    config: Embedding,
    env: Mapping[str, str],
    models: Path | None = None,
    plugged: Mapping[str, Callable[[], Embedder]] = MappingProxyType({}),
) -> EmbedderChain:
    """The chain as configured; a provider without a key, or a model that is not there, is passed over.

    A hub's model is kept in `models` and awaited until it is there; `fetch` brings it. `plugged` makes those
    that plugins bring.
    """
    preferred: list[Embedder] = []
    awaited: list[tuple[int, HubModel]] = []
    for name in config.providers:
        try:
            found: Embedder | HubModel | None
            if name == "local":
                found = _local(config.local, models or _models(env))
            elif name in plugged:
                found = plugged[name]()
            elif name in _KEYS:
                found = _remote(name, config, env)
            else:
                raise NotFound("no plugin brings it")
        except HoldfastError as error:
            log.warning("embedder %s is left out: %s", name, error.message)
            continue
        if isinstance(found, HubModel):
            awaited.append((len(preferred), found))
        elif found is not None:
            preferred.append(found)
    return EmbedderChain(
        preferred,
        _static(),
        awaited,
        failover_seconds=config.failover_after / 1000,
        local_beside=config.local_beside,
    )


def _models(env: Mapping[str, str]) -> Path:
    return Path(env.get("HOLDFAST_HOME") or "~/.holdfast").expanduser() / "models"


def _from_hub(model: HubModel, manifest: Manifest) -> Embedder:
    from holdfast.memory.embedders.transformer import TransformerEmbedder

    return TransformerEmbedder(model.folder, manifest.model)


def _hub(place: str, models: Path) -> Embedder | HubModel:
    """The model if its files are here already, else where to get it."""
    if "://" in place:
        check_address(place.partition("#")[0])
    model = HubModel(place, models)
    manifest = model.ready()
    return model if manifest is None else _from_hub(model, manifest)


def _local(provider: EmbeddingProvider, models: Path) -> Embedder | HubModel | None:
    """A transformer from a hub, a folder or an installed weights package; none unless asked for or there."""
    from holdfast.memory.embedders.transformer import TransformerEmbedder

    if provider.base_url is not None:
        return _hub(provider.base_url, models)
    if provider.model is not None and provider.model.partition("#")[0].endswith(".json"):
        return _hub(provider.model, models)
    if provider.model is not None and ("/" in provider.model or provider.model.startswith("~")):
        return TransformerEmbedder(Path(provider.model).expanduser())
    if provider.model in (None, "all-MiniLM-L6-v2") and _has_minilm():
        return _minilm()
    return None


@cache
def _static() -> Embedder:
    """What packages carry is read once; the homes that one process opens share it."""
    from holdfast.memory.embedders.static import StaticEmbedder

    return StaticEmbedder()


@cache
def _minilm() -> Embedder:
    from holdfast.memory.embedders.transformer import TransformerEmbedder

    return TransformerEmbedder.minilm()


def _has_minilm() -> bool:
    from importlib.util import find_spec

    from holdfast.memory.embedders.transformer import MINILM_PACKAGE

    return find_spec(MINILM_PACKAGE) is not None


def _remote(name: str, config: Embedding, env: Mapping[str, str]) -> Embedder | None:
    from holdfast.memory.embedders.remote import (
        GEMINI,
        GEMINI_URL,
        OPENAI,
        OPENAI_URL,
        Endpoint,
        RemoteEmbedder,
    )

    provider: EmbeddingProvider = getattr(config, name)
    key = _key(name, provider, env)
    if key is None and provider.base_url is None:
        return None
    wire, url = (OPENAI, OPENAI_URL) if name == "openai" else (GEMINI, GEMINI_URL)
    endpoint = Endpoint(
        url=provider.base_url or url,
        model=provider.model or "",
        dims=provider.dimensions,
        key=key,
        batch=config.batch_size,
        timeout=config.timeout_ms / 1000,
    )
    return RemoteEmbedder(endpoint, wire)


def _key(name: str, provider: EmbeddingProvider, env: Mapping[str, str]) -> str | None:
    if provider.api_key is not None:
        return provider.api_key.reveal(env)
    return next((env[variable] for variable in _KEYS[name] if env.get(variable)), None)
