"""Models in the service of other rooms: judges for the board, a summariser for context.

Each asks in one short call without tools. What others wrote is fenced: it is data, never an instruction.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from holdfast.agents.models.catalogue import RECALL
from holdfast.agents.models.failover import Models
from holdfast.agents.models.types import (
    ModelAbout,
    ModelFailure,
    ModelRef,
    ModelReply,
    ModelRequest,
    Usage,
)
from holdfast.config import Config
from holdfast.context import Message, SummaryRequest, SystemMessage, Trust, UserMessage, fence, neutralise

if TYPE_CHECKING:
    from holdfast.board.judge import Question

JUDGE_TOKENS: Final = 3_000
_SPARE_TOKENS: Final = 512
_CHARS_PER_TOKEN: Final = 3
_MOST_SUMMARY_TOKENS: Final = 16_000
_JSON_ONLY: Final = "Answer with one JSON object that fits this JSON Schema, and nothing else:\n"


class BoardModels:
    """The models that help the board to sort and to write digests: which, and whether one is there at all."""

    def __init__(self, models: Models, config: Callable[[], Config]) -> None:
        self._models = models
        self._config = config
        self._in_words: set[ModelRef] = set()
        """Models whose server takes no schema: they are told of it in words alone."""

    def judge(self, agent_id: str | None) -> ModelJudge | None:
        """Who looks over what was sorted in an agent's sessions; None where rules are alone."""
        return self._helper(self._config().board.classifier.model, agent_id)

    def scribe(self) -> ModelJudge | None:
        """Who chooses what stands in a digest: the digests' model, else the classifier's."""
        board = self._config().board
        return self._helper(board.digests.model or board.classifier.model, None)

    def _helper(self, named: str | None, agent_id: str | None) -> ModelJudge | None:
        """A model that is named for a chore serves it alone: it must not fall back on a dearer one. Without
        one it is the agent's own first choice."""
        config = self._config()
        if not config.board.classifier.use_model:
            return None
        known = agent_id is not None and any(one.id == agent_id for one in config.agent_list)
        agent = agent_id if agent_id is not None and known else config.default_agent_id
        refs = [ModelRef.parse(named)] if named is not None else self._models.choice(config.agent(agent))[:1]
        able = [ref for ref in refs if ref != RECALL]
        return ModelJudge(self._models, self._config, able, self._in_words) if able else None


class ModelJudge:
    """The board's `Judge`: one call, answered as JSON."""

    def __init__(
        self,
        models: Models,
        config: Callable[[], Config],
        refs: Sequence[ModelRef],
        in_words: set[ModelRef] | None = None,
    ) -> None:
        self._models = models
        self._config = config
        self._refs = refs
        self._in_words = set() if in_words is None else in_words

    async def ask(self, question: Question) -> str:
        """The answer; `ModelFailure` when none can be had now. With the schema enforced where the server can;
        one that rejects it is asked in words alone, from then on."""
        system = f"{question.system}\n\n{_JSON_ONLY}{json.dumps(question.schema, ensure_ascii=False)}"
        messages = (SystemMessage(text=system), UserMessage(text=_fenced_json(question.text)))
        if self._in_words.isdisjoint(self._refs):
            try:
                return await self._said(messages, question.schema)
            except ModelFailure as failed:
                if failed.reason != "bad_request":
                    raise
                self._in_words.update(self._refs)
        return await self._said(messages, None)

    async def _said(self, messages: Sequence[Message], schema: Mapping[str, Any] | None) -> str:
        return await _ask(self._models, self._config(), self._refs, messages, JUDGE_TOKENS, schema)


class Ledger(Protocol):
    """Whose a session is, and the book in which its costs stand."""

    async def agent_of(self, session_id: str) -> str | None: ...

    async def asked(self, session_id: str, about: ModelAbout, messages: Sequence[Message]) -> None: ...

    async def spent(self, session_id: str, usage: Usage) -> None: ...


class ModelSummariser:
    """The context room's `Summariser`; `model` of the request comes first, else those of the agent whose
    history it is. What it costs is put down to that session, whether the summary is used or not."""

    def __init__(self, models: Models, config: Callable[[], Config], ledger: Ledger | None = None) -> None:
        self._models = models
        self._config = config
        self._ledger = ledger

    async def summarise(self, request: SummaryRequest) -> str:
        config, ledger, session = self._config(), self._ledger, request.session_id
        owner = None if ledger is None or session is None else await ledger.agent_of(session)
        known = owner is not None and any(one.id == owner for one in config.agent_list)
        agent = owner if owner is not None and known else config.default_agent_id
        first = [ModelRef.parse(request.model)] if request.model is not None else []
        refs = _able([*first, *self._models.choice(config.agent(agent))])
        system = f"{request.instructions}\nAbout {request.target_tokens} tokens."
        text = _to_summarise(request)
        most = min(_MOST_SUMMARY_TOKENS, request.target_tokens * 2 + _SPARE_TOKENS)
        messages: list[Message] = [SystemMessage(text=system), UserMessage(text=text)]
        reply = await _asked(self._models, config, refs, messages, most, agent=agent)
        if ledger is not None and session is not None:
            await ledger.asked(session, self._models.about(reply.model), messages)
            await ledger.spent(session, reply.usage)
        return reply.text


def _to_summarise(request: SummaryRequest) -> str:
    names = ", ".join(request.must_keep)
    told = (
        ("The record so far, to be carried on", request.previous, Trust.MODEL, "record"),
        ("What happened since", request.text, Trust.OUTSIDE, "conversation"),
        ("Names to keep exactly as they are", names, Trust.OUTSIDE, "names"),
    )
    return "\n\n".join(
        f"{title}:\n{fence(text, trust, source)}" for title, text, trust, source in told if text
    )


def _able(refs: Sequence[ModelRef]) -> list[ModelRef]:
    """Without the recall model, which can only quote."""
    able = [ref for ref in dict.fromkeys(refs) if ref != RECALL]
    if not able:
        raise ModelFailure(
            "no model is connected", "not_configured", hint="Set a key or a model; see `holdfast doctor`."
        )
    return able


def _fenced_json(text: str) -> str:
    """The data at the start of a question in a fence; what follows them are the asker's own words."""
    try:
        end = json.JSONDecoder().raw_decode(text)[1]
    except ValueError:
        end = len(text)
    return fence(text[:end], Trust.OUTSIDE, "board") + neutralise(text[end:])


async def _ask(
    models: Models,
    config: Config,
    refs: Sequence[ModelRef],
    messages: Sequence[Message],
    max_tokens: int,
    schema: Mapping[str, Any] | None = None,
) -> str:
    return (await _asked(models, config, refs, messages, max_tokens, schema)).text


async def _asked(
    models: Models,
    config: Config,
    refs: Sequence[ModelRef],
    messages: Sequence[Message],
    max_tokens: int,
    schema: Mapping[str, Any] | None = None,
    *,
    agent: str | None = None,
) -> ModelReply:
    async def build(about: ModelAbout) -> ModelRequest:
        return ModelRequest(
            messages=messages,
            thinking="off",
            max_tokens=min(max_tokens, about.max_tokens, about.window // 2),
            output_schema=schema,
        )

    answered = await models.answer(refs, build, agent_id=agent or config.default_agent_id)
    return answered.reply
