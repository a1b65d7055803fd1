"""Chains as people and programs see them; one that the transaction's reader may not read is not there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from holdfast.clock import iso
from holdfast.config import Config
from holdfast.config.autonomy import Continuation, Subagents
from holdfast.continuation import records
from holdfast.continuation.limits import Budget
from holdfast.errors import NotFound
from holdfast.log import Chain, Tx, chains
from holdfast.records import Iso, record
from holdfast.runtime.chain_tree import NodeOut, time_of, tree, words_of


@record
class OriginOut(TypedDict):
    sessionKey: str
    agentId: str | None
    trigger: str
    sender: str | None
    entryId: str | None
    text: Annotated[
        str | None, Field(description="What was asked, clipped; null if the caller may not read it.")
    ]


# `return` is a word of the language, so that the form cannot be a class.
LiveOut = TypedDict("LiveOut", {"turn": int, "subagent": int, "return": int, "election": int})
record(LiveOut)


@record
class ChainOut(TypedDict):
    id: str
    state: Literal["live", "ended", "stopped"]
    origin: OriginOut
    steps: Annotated[int, Field(description="Elected turns and delegates, over all sessions.")]
    maxSteps: int
    sent: Annotated[int, Field(description="Subagents and messages to other sessions.")]
    maxSent: int
    tokens: int
    maxTokens: Annotated[int | None, Field(description="Null: no cap.")]
    cost: Annotated[float, Field(description="In dollars, as far as prices are known.")]
    maxCost: Annotated[float | None, Field(description="Null: no cap.")]
    startedAt: Iso
    updatedAt: Iso
    endedAt: Iso | None
    stoppedAt: Iso | None
    stopReason: str | None
    nextDueAt: Iso | None
    live: Annotated[LiveOut, Field(description="How many of each sort live in it.")]


@record
class ChainTreeOut(ChainOut):
    nodes: Annotated[list[NodeOut], Field(description="What came of each stands behind it.")]
    cut: Annotated[bool, Field(description="There are more than 500; the newest are told.")]


def listing(tx: Tx, config: Config, *, live: bool = False, limit: int = 50) -> list[ChainOut]:
    """The summaries of chains: those that live first, then the last used."""
    return summaries(tx, config, chains.listing(tx, live=live, limit=limit))


def look(tx: Tx, config: Config, ids: Sequence[str]) -> dict[str, ChainOut]:
    """The same for some that may be read, by id."""
    found = [chains.get(tx, id_) for id_ in chains.readable(tx, list(dict.fromkeys(ids)))]
    return {told["id"]: told for told in summaries(tx, config, found)}


def whole(tx: Tx, config: Config, id_: str) -> ChainTreeOut:
    """One chain with its tree; `unknown_chain` if it is not there for this reader."""
    chain = chains.get(tx, id_)
    nodes, cut = tree(tx, chain)
    return {**summaries(tx, config, [chain])[0], "nodes": [node.json() for node in nodes], "cut": cut}


def summaries(tx: Tx, config: Config, found: Sequence[Chain]) -> list[ChainOut]:
    ids = [chain.id for chain in found]
    living, due = chains.living(tx, ids), records.next_due_of(tx, ids)
    words = words_of(tx, [chain.entry_id for chain in found])
    return [_summary(chain, config, living[chain.id], due.get(chain.id), words) for chain in found]


def _summary(
    chain: Chain, config: Config, living: Mapping[str, int], due: int | None, words: Mapping[str, str]
) -> ChainOut:
    settings, children = _settings(config, chain.agent_id)
    allowed = Budget.of(settings)
    state: Literal["live", "ended", "stopped"] = "stopped" if chain.stopped else "live" if living else "ended"
    return {
        "id": chain.id,
        "state": state,
        "origin": {
            "sessionKey": chain.session_key,
            "agentId": chain.agent_id,
            "trigger": chain.trigger,
            "sender": chain.sender,
            "entryId": chain.entry_id,
            "text": words.get(chain.entry_id or ""),
        },
        "steps": chain.steps,
        "maxSteps": allowed.steps,
        "sent": chain.sent,
        "maxSent": children.max_per_chain,
        "tokens": chain.tokens,
        "maxTokens": allowed.tokens or None,
        "cost": round(chain.cost, 6),
        "maxCost": allowed.dollars or None,
        "startedAt": iso(chain.started_at),
        "updatedAt": iso(chain.updated_at),
        "endedAt": None if state == "live" else time_of(chain.ended_at),
        "stoppedAt": time_of(chain.stopped_at),
        "stopReason": chain.stop_reason,
        "nextDueAt": time_of(due),
        "live": {
            "turn": living.get("turn", 0),
            "subagent": living.get("subagent", 0),
            "return": living.get("return", 0),
            "election": living.get("election", 0),
        },
    }


def _settings(config: Config, agent_id: str | None) -> tuple[Continuation, Subagents]:
    """What bounds the chains of an agent now; one that is gone has what is usual."""
    try:
        agent = config.agent(agent_id or config.default_agent_id)
    except NotFound:
        return Continuation(), Subagents()
    return agent.continuation, agent.subagents
