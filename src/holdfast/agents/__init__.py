"""Which agent a message goes to: by its bindings, the most exact one first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from holdfast.ids import AgentId

if TYPE_CHECKING:
    from holdfast.config import AgentEntry, Binding, BindingMatch, PeerKind


__all__ = ["Origin", "Route", "Step", "default_agent", "explain", "route"]


Rule = Literal["peer", "guild", "team", "account", "peerKind", "channel", "any", "default"]
ANY = "*"
FALLBACK_AGENT = "main"

_WEIGHTS: dict[Rule, int] = {
    "peer": 32,
    "guild": 16,
    "team": 8,
    "account": 4,
    "peerKind": 2,
    "channel": 1,
    "any": 0,
}


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a message comes from, as far as its channel says."""

    channel: str
    account_id: str | None = None
    peer_kind: PeerKind | None = None
    peer_id: str | None = None
    guild_id: str | None = None
    team_id: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One binding's answer: which rule it stands under, and why it did not match, if it did not."""

    index: int
    agent_id: AgentId
    rule: Rule
    specificity: int
    matched: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Route:
    """The agent that answers, the rule that decided, and what every binding said."""

    agent_id: AgentId
    rule: Rule
    steps: tuple[Step, ...]
    binding: int | None = None


def route(message: Origin, bindings: Sequence[Binding], agents: Sequence[AgentEntry]) -> Route:
    """Choose the agent: exact peer, guild, team, account, channel, then the default agent.

    Every field of a binding must match. Among those that match, the one with the most specific
    field wins, then the one with the next most specific besides, then the earlier. A peer by kind
    alone stands between account and channel: it narrows a channel, but names no one.
    """
    known = {agent.id for agent in agents} or {FALLBACK_AGENT}
    steps = tuple(_step(index, message, b, known) for index, b in enumerate(bindings))
    matching = [step for step in steps if step.matched]
    if not matching:
        return Route(default_agent(agents), "default", steps)
    best = max(matching, key=lambda step: (step.specificity, -step.index))
    return Route(best.agent_id, best.rule, steps, best.index)


def default_agent(agents: Sequence[AgentEntry]) -> AgentId:
    """The agent marked default, else the first, else `main`."""
    marked = [agent.id for agent in agents if agent.default]
    listed = [agent.id for agent in agents]
    return AgentId((marked or listed or [FALLBACK_AGENT])[0])


def explain(decision: Route) -> tuple[str, ...]:
    """A line for every binding, and a last one for the outcome."""
    lines = [f"bindings[{s.index}] -> {s.agent_id} ({s.rule}): {s.reason}" for s in decision.steps]
    by = "no binding matched" if decision.binding is None else f"bindings[{decision.binding}]"
    return (*lines, f"{decision.agent_id} by {decision.rule}: {by}")


def _step(index: int, message: Origin, binding: Binding, known: set[str]) -> Step:
    rules = list(_rules(binding.match))
    misses = [*_refusals(binding, known), *_misses(message, binding.match)]
    return Step(
        index=index,
        agent_id=AgentId(binding.agent_id),
        rule=rules[0],
        specificity=sum(_WEIGHTS[rule] for rule in rules),
        matched=not misses,
        reason="; ".join(misses) or "matches",
    )


def _rules(match: BindingMatch) -> Iterator[Rule]:
    """The fields that the binding narrows by, most specific first.

    Each weight is above the sum of those after it, so sums compare field by field.
    """
    peer = match.peer
    if peer and peer.id is not None:
        yield "peer"
    if match.guild_id is not None:
        yield "guild"
    if match.team_id is not None:
        yield "team"
    if match.account_id not in (None, ANY):
        yield "account"
    if peer and peer.kind is not None:
        yield "peerKind"
    if match.channel != ANY:
        yield "channel"
    yield "any"


def _refusals(binding: Binding, known: set[str]) -> Iterator[str]:
    if not binding.enabled:
        yield "it is switched off"
    if binding.agent_id not in known:
        yield f"there is no agent {binding.agent_id!r}"


def _misses(message: Origin, match: BindingMatch) -> Iterator[str]:
    """Why the message does not fit, field by field."""
    wanted = (
        ("channel", match.channel.lower(), message.channel.lower()),
        ("accountId", match.account_id, message.account_id),
        ("peer.kind", match.peer.kind if match.peer else None, message.peer_kind),
        ("peer.id", match.peer.id if match.peer else None, message.peer_id),
        ("guildId", match.guild_id, message.guild_id),
        ("teamId", match.team_id, message.team_id),
    )
    for name, want, have in wanted:
        wild = want == ANY and name in ("channel", "accountId")
        if want is not None and not wild and want != have:
            yield f"{name} is {have!r}, not {want!r}" if have else f"the message has no {name}"
