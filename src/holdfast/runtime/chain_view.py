"""Chains as people and programs see them; one that the transaction's reader may not read is not there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.clock import iso
from holdfast.config import Config
from holdfast.config.autonomy import Continuation, Subagents
from holdfast.continuation import records
from holdfast.continuation.limits import Budget
from holdfast.errors import NotFound
from holdfast.log import Chain, Tx, chains
from holdfast.runtime.chain_tree import time_of, tree, words_of

SORTS: Final = ("turn", "subagent", "return", "election")


def listing(tx: Tx, config: Config, *, live: bool = False, limit: int = 50) -> list[dict[str, Any]]:
    """The summaries of chains: those that live first, then the last used."""
    return summaries(tx, config, chains.listing(tx, live=live, limit=limit))


def look(tx: Tx, config: Config, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The same for some that may be read, by id."""
    found = [chains.get(tx, id_) for id_ in chains.readable(tx, list(dict.fromkeys(ids)))]
    return {told["id"]: told for told in summaries(tx, config, found)}


def whole(tx: Tx, config: Config, id_: str) -> dict[str, Any]:
    """One chain with its tree; `unknown_chain` if it is not there for this reader."""
    chain = chains.get(tx, id_)
    nodes, cut = tree(tx, chain)
    return summaries(tx, config, [chain])[0] | {"nodes": [node.json() for node in nodes], "cut": cut}


def summaries(tx: Tx, config: Config, found: Sequence[Chain]) -> list[dict[str, Any]]:
    ids = [chain.id for chain in found]
    living, due = chains.living(tx, ids), records.next_due_of(tx, ids)
    words = words_of(tx, [chain.entry_id for chain in found])
    return [_summary(chain, config, living[chain.id], due.get(chain.id), words) for chain in found]


def _summary(
    chain: Chain, config: Config, living: Mapping[str, int], due: int | None, words: Mapping[str, str]
) -> dict[str, Any]:
    settings, children = _settings(config, chain.agent_id)
    allowed = Budget.of(settings)
    state = "stopped" if chain.stopped else "live" if living else "ended"
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
        "live": {sort: living.get(sort, 0) for sort in SORTS},
    }


def _settings(config: Config, agent_id: str | None) -> tuple[Continuation, Subagents]:
    """What bounds the chains of an agent now; one that is gone has what is usual."""
    try:
        agent = config.agent(agent_id or config.default_agent_id)
    except NotFound:
        return Continuation(), Subagents()
    return agent.continuation, agent.subagents
