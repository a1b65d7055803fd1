"""The built-in model: no network, no guessing. It quotes what memory and board hold, and says where."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from holdfast.agents.models.catalogue import MAX_TOKENS, RECALL, WINDOW
from holdfast.agents.models.types import ModelAbout, ModelEvent, ModelReply, ModelRequest, TextDelta, Usage
from holdfast.context import CarrierMessage, SystemMessage, UserMessage, neutralise
from holdfast.errors import HoldfastError
from holdfast.text import clip, rough_tokens

KEPT: Final = "What you say here is kept, and is found again."
HOW_TO_CONNECT: Final = (
    "No language model is connected, so this is what I find, not what I think. To connect one, set "
    "ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY or OPENROUTER_API_KEY, or start Ollama, LM Studio or "
    "llama.cpp on this machine; `holdfast doctor` shows what was found."
)
_MOST: Final = 4
_LINE: Final = 280
_QUESTION: Final = 2_000
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+|\n+")
_WORD: Final = re.compile(r"\w{3,}|\d+")
_COMMON: Final = re.compile(
    "about|all|and|any|are|but|can|did|does|for|from|had|has|have|how|into|its|not|our|out|she|that|the"
    "|their|them|then|there|they|this|was|were|what|when|where|which|who|why|will|with|would|you|your"
)


@dataclass(frozen=True, slots=True)
class Hit:
    """Something that was found, and where: `MEMORY.md#L3-L5`, `topic:…`, `log:…`."""

    text: str
    citation: str


class Search(Protocol):
    """What memory and board hold on a question, best first; handed in at start-up."""

    async def __call__(self, question: str, session_key: str | None) -> Sequence[Hit]: ...


class RecallModel:
    """A `Model` that quotes. The same question over the same memory gives the same answer."""

    def __init__(self, search: Search | None, session_key: str | None = None) -> None:
        self._search = search
        self._session_key = session_key

    @property
    def about(self) -> ModelAbout:
        return ModelAbout(RECALL, WINDOW, MAX_TOKENS)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        question = asked(request)
        text = composed(question, await self._hits(question))
        yield TextDelta(text)
        words = sum(rough_tokens(message.text) for message in request.messages)
        yield ModelReply(model=RECALL, text=text, usage=Usage(words, rough_tokens(text), cost=0.0))

    async def _hits(self, question: str) -> Sequence[Hit]:
        if self._search is None or not question:
            return ()
        try:
            return await self._search(question, self._session_key)
        except HoldfastError:
            return ()  # an answer that finds nothing is better here than none: it says how to go on


def asked(request: ModelRequest) -> str:
    """The user's last words."""
    said = [m.text for m in request.messages if isinstance(m, UserMessage) and m.text.strip()]
    if not said:
        said = [m.text for m in request.messages if not isinstance(m, SystemMessage | CarrierMessage)]
    return said[-1].strip()[:_QUESTION] if said else ""


def composed(question: str, hits: Sequence[Hit]) -> str:
    """The best sentences with their sources, or that there is nothing; and how to connect a model."""
    lines = best(question, hits)
    if not lines:
        return f"I find nothing on this in memory or on the board yet. {KEPT}\n\n{HOW_TO_CONNECT}"
    quoted = "\n".join(f"- {line} (Source: {citation})" for line, citation in lines)
    return f"This is what I find:\n{quoted}\n\n{HOW_TO_CONNECT}"


def best(question: str, hits: Sequence[Hit]) -> list[tuple[str, str]]:
    """At most a few sentences: those that share most words with the question, better hits first."""
    wanted = _words(question)
    hits = [hit for hit in hits if not _asks_the_same(hit.text, wanted)]
    scored: dict[str, tuple[float, int, str]] = {}
    for place, hit in enumerate(hits):
        for sentence in _SENTENCE.split(hit.text):
            line = clip(" ".join(neutralise(sentence).split()).lstrip("-*#> "), _LINE)
            words = _words(line)
            shared = len(wanted & words)
            if line and (shared or (place == 0 and not wanted)) and not _asks_the_same(line, wanted):
                score = shared / (1 + len(wanted)) + 0.1 / (1 + place)
                scored.setdefault(line, (score, -len(scored), hit.citation))
    chosen = sorted(scored.items(), key=lambda item: item[1][:2], reverse=True)[:_MOST]
    if not chosen and hits:
        first = clip(" ".join(neutralise(hits[0].text).split()), _LINE)
        return [(first, hits[0].citation)] if first else []
    return [(line, citation) for line, (_, _, citation) in chosen]


def _asks_the_same(text: str, wanted: set[str]) -> bool:
    """Whether a text only asks what is asked now, as someone did before: that answers nothing."""
    return text.rstrip().endswith("?") and _words(text) <= wanted


def _words(text: str) -> set[str]:
    return {_stem(word) for word in _WORD.findall(text.lower()) if not _COMMON.fullmatch(word)}


def _stem(word: str) -> str:
    """Enough to let `releases` meet `release`; the search did the real work."""
    return word[:-1] if len(word) > 4 and word.endswith("s") else word
