"""Chains as people and programs see them: what followed from what. What the reader may not read is not there.

Of what a chain did in sessions that the reader may not read, only that it was there is told: no words, no
session.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal

from pydantic import Field
from typing_extensions import TypedDict

from holdfast.agents.subagents import registry
from holdfast.agents.subagents.ending import RETURN
from holdfast.clock import iso
from holdfast.config import Config
from holdfast.config.agents import Continuation, Subagents
from holdfast.continuation import records
from holdfast.continuation.limits import Budget
from holdfast.continuation.state import Phase, Record, Status
from holdfast.errors import NotFound
from holdfast.keys import parse_key
from holdfast.log import SYSTEM, Chain, Turn, Tx, chains, entries, sessions, turns
from holdfast.records import Iso, record
from holdfast.text import clip

MOST_NODES: Final = 500
MOST_TEXT: Final = 200


Kind = Literal["turn", "work", "delegate", "post_compaction", "subagent"]


@record
class NodeOut(TypedDict):
    id: str
    parentId: Annotated[str | None, Field(description="What brought it about; null for the beginning.")]
    depth: int
    kind: Kind
    state: str
    sessionKey: str | None
    agentId: str | None
    trigger: str | None
    mode: str | None
    text: str | None
    reply: str | None
    error: str | None
    tokens: Annotated[
        int, Field(description="Those of a subagent are those of its turns, which stand below it.")
    ]
    cost: float
    startedAt: Iso
    dueAt: Iso | None
    endedAt: Iso | None
    hidden: Annotated[bool, Field(description="It is in a session that the caller may not read.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One thing that a chain brought about. `parent` is what brought it about; None for its beginning.

    `tokens` and `cost` of a subagent are those of its turns, which stand below it.
    """

    id: str
    kind: Kind
    state: str
    at: int
    session_key: str | None
    agent_id: str | None
    parent: str | None = None
    depth: int = 0
    trigger: str | None = None
    mode: str | None = None
    text: str | None = None
    reply: str | None = None
    error: str | None = None
    usage: Mapping[str, Any] | None = None
    due_at: int | None = None
    ended_at: int | None = None
    hidden: bool = False

    def json(self) -> NodeOut:
        used = self.usage or {}
        return {
            "id": self.id,
            "parentId": self.parent,
            "depth": self.depth,
            "kind": self.kind,
            "state": self.state,
            "sessionKey": self.session_key,
            "agentId": self.agent_id,
            "trigger": self.trigger,
            "mode": self.mode,
            "text": self.text,
            "reply": self.reply,
            "error": self.error,
            "tokens": int(used.get("inputTokens", 0)) + int(used.get("outputTokens", 0)),
            "cost": round(float(used.get("cost") or 0), 6),
            "startedAt": iso(self.at),
            "dueAt": time_of(self.due_at),
            "endedAt": time_of(self.ended_at),
            "hidden": self.hidden,
        }

    def without_words(self) -> Node:
        return replace(
            self, session_key=None, agent_id=None, text=None, reply=None, error=None, hidden=True
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Rows:
    """What a chain is made of, whoever reads it."""

    turns: Sequence[Turn]
    elections: Sequence[Record]
    runs: Sequence[registry.Run]


def tree(tx: Tx, chain: Chain) -> tuple[list[Node], bool]:
    """The nodes of a chain from its beginning down, what came of each behind it; and whether some were left
    out. Of more than fit, the newest and the beginning are told."""
    rows = _rows(tx, chain)
    made = sorted(_nodes(tx, rows), key=lambda node: (node.at, node.kind != "turn", node.id))
    kept = made
    if len(made) > MOST_NODES:
        newest = made[1 - MOST_NODES :]
        kept = [*(node for node in made[: 1 - MOST_NODES] if node.id == chain.id), *newest]
    linked = _linked(kept, _parents(rows, chain.id), chain.id)
    return _in_tree_order(linked), len(kept) < len(made)


def _rows(tx: Tx, chain: Chain) -> _Rows:
    """One more of each than is told, so that it is known when some are left out."""
    with tx.reading_as(SYSTEM):
        ids = chains.turns_of(tx, chain.id, limit=MOST_NODES + 1)
        found = turns.get_many(tx, list(dict.fromkeys([chain.id, *ids])))
    return _Rows(
        sorted(found, key=lambda turn: turn.id),
        records.in_chain(tx, chain.id, limit=MOST_NODES + 1),
        registry.in_chain(tx, chain.id, limit=MOST_NODES + 1),
    )


def _nodes(tx: Tx, rows: _Rows) -> list[Node]:
    """Each as its reader may see it."""
    open_turns = {turn.id for turn in turns.get_many(tx, [turn.id for turn in rows.turns])}
    session_ids = [*(one.session_id for one in rows.elections), *(run.child_session_id for run in rows.runs)]
    open_sessions = {one.id for one in sessions.get_many(tx, list(dict.fromkeys(session_ids)))}
    words = words_of(tx, [id_ for turn in rows.turns for id_ in (turn.input_id, turn.reply_id)])
    everything = tx.reader.reads_all
    made = [(_of_turn(turn, words), turn.id in open_turns) for turn in rows.turns]
    made += [(_of_election(one), everything or one.session_id in open_sessions) for one in rows.elections]
    made += [(_of_run(run), everything or run.child_session_id in open_sessions) for run in rows.runs]
    return [node if is_open else node.without_words() for node, is_open in made]


def _of_turn(turn: Turn, words: Mapping[str, str]) -> Node:
    return Node(
        id=turn.id,
        kind="turn",
        state=turn.status.value,
        at=turn.accepted_at,
        session_key=turn.session_key,
        agent_id=parse_key(turn.session_key).agent_id or _asked(turn).get("agentId"),
        trigger=turn.trigger,
        text=words.get(turn.input_id or ""),
        reply=words.get(turn.reply_id or ""),
        error=None if turn.error is None else clip(turn.error, MOST_TEXT),
        usage=turn.usage or turns.spent(turn),
        ended_at=turn.ended_at,
    )


def _of_election(record: Record) -> Node:
    waits = record.status is Status.QUEUED and record.phase is not Phase.ELECTING
    return Node(
        id=record.id,
        kind=record.kind.value,
        state="staged" if record.phase is Phase.STAGED else record.status.value,
        at=record.created_at,
        session_key=record.owner,
        agent_id=record.agent_id,
        mode=None if record.kind.value == "work" else record.election.mode,
        text=clip(record.election.text, MOST_TEXT),
        error=None if record.failure is None else clip(record.failure, MOST_TEXT),
        due_at=record.due if waits else None,
        ended_at=record.ended_at,
    )


def _of_run(run: registry.Run) -> Node:
    ended = run.outcome is not None and not run.live
    return Node(
        id=run.id,
        kind="subagent",
        state=str(run.outcome.value) if ended and run.outcome is not None else run.status.value,
        at=run.created_at,
        session_key=run.child_key,
        agent_id=run.agent_id,
        mode=run.mode,
        text=clip(run.task, MOST_TEXT),
        reply=None if run.said is None else clip(run.said, MOST_TEXT),
        error=None if run.error is None else clip(run.error, MOST_TEXT),
        usage=run.usage,
        ended_at=run.ended_at,
    )


def _parents(rows: _Rows, root: str) -> dict[str, str]:
    """What brought each about, by id."""
    found = {one.id: one.election.turn_id for one in rows.elections}
    by_spawn = {one.spawn_key: one.id for one in rows.elections if one.spawn_key is not None}
    for run in rows.runs:
        found[run.id] = by_spawn.get(run.spawn_key) or run.requester_turn or root
    causes = {one.turn_id: one.id for one in rows.elections if one.turn_id}
    causes |= {run.announce_turn: run.id for run in rows.runs if run.announce_turn}
    causes |= {run.run_id: run.id for run in rows.runs if run.run_id}
    last: dict[str, str] = {}
    for turn in rows.turns:
        sender = str(_asked(turn).get("sender") or "") if turn.trigger == "session" else turn.session_key
        before = last.get(sender) or last.get(turn.session_key)
        found[turn.id] = causes.get(turn.id) or _named_in(turn.key) or before or root
        last[turn.session_key] = turn.id
    return found


def _named_in(key: str) -> str | None:
    """The election or run that asked for a turn, where the turn's own key says so."""
    kind, _, rest = key.partition(":")
    return rest.partition(":")[0] if kind in _ASKED_FOR else None


_ASKED_FOR: Final = ("continuation", "delegate-return", RETURN)


def _linked(nodes: Sequence[Node], parents: Mapping[str, str], root: str) -> list[Node]:
    """Each with what brought it about; where that is not told of, the chain's beginning stands for it."""
    known = {node.id for node in nodes}
    beginning = root if root in known else None

    def parent_of(node: Node) -> str | None:
        parent = parents.get(node.id)
        return parent if parent in known and parent != node.id else beginning

    return [node if node.id == root else replace(node, parent=parent_of(node)) for node in nodes]


def _in_tree_order(nodes: Sequence[Node]) -> list[Node]:
    """Depth first, each with how deep it stands; what stands in a ring is put beside the beginning."""
    below: dict[str | None, list[Node]] = {}
    for node in nodes:
        below.setdefault(node.parent, []).append(node)
    told: dict[str, Node] = {}

    def walk(tops: Iterable[Node]) -> None:
        waiting = [(node, 0) for node in reversed(list(tops))]
        while waiting:
            node, depth = waiting.pop()
            if node.id in told:
                continue
            told[node.id] = replace(node, depth=depth)
            waiting += [(one, depth + 1) for one in reversed(below.get(node.id, []))]

    walk(below.get(None, ()))
    for node in nodes:
        if node.id not in told:
            walk([replace(node, parent=None)])
    return list(told.values())


def _asked(turn: Turn) -> Mapping[str, Any]:
    asked: Mapping[str, Any] = (turn.meta or {}).get("ask") or {}
    return asked


def words_of(tx: Tx, ids: Iterable[str | None]) -> dict[str, str]:
    """What the entries say that the reader may read, clipped."""
    wanted = sorted({id_ for id_ in ids if id_ is not None})
    found = entries.get_many(tx, wanted) if wanted else []
    return {one.id: clip(one.content, MOST_TEXT) for one in found if one.deleted_at is None}


def time_of(at: int | None) -> str | None:
    return None if at is None else iso(at)


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
