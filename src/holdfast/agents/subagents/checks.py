"""What `sessions_spawn` takes, and whether a session may delegate, with the reason for every no."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from holdfast.agents.subagents.registry import Cleanup, ContextMode, Mode
from holdfast.config.agents import Subagents, Thinking
from holdfast.errors import Busy, Forbidden, HoldfastError, InvalidInput, NotFound
from holdfast.keys import canonical_agent_id

ANY: Final = "*"

SandboxWish = Literal["inherit", "require"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What of a spawn the rules look at."""

    agent_id: str
    thread: bool = False
    mode: Mode = "run"
    context: ContextMode = "isolated"
    sandbox: SandboxWish = "inherit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requester:
    """Where the requester stands. `depth` is 0 for a session that nobody spawned.

    `threads` says whether the requester's surface can open a thread.
    """

    agent_id: str
    known_agents: frozenset[str]
    depth: int
    live_children: int
    sandboxed: bool = False
    target_sandboxed: bool = False
    threads: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    code: str
    message: str
    hint: str
    kind: type[HoldfastError] = Forbidden

    def error(self) -> HoldfastError:
        return self.kind(self.message, code=self.code, hint=self.hint)


def refusal(wish: Wish, rules: Subagents, here: Requester) -> Refusal | None:
    """The first rule that speaks against it; None if it may go ahead."""
    return (
        _by_depth(rules, here)
        or _by_agent(wish, rules, here)
        or _by_place(wish, here)
        or _by_room(rules, here)
    )


def chain_refusal(sent: int, rules: Subagents) -> Refusal | None:
    """Whether one message has set going as much as it may, over all sessions that follow from it."""
    if sent < rules.max_per_chain:
        return None
    return Refusal(
        "chain_full",
        f"{sent} subagents and messages to other sessions follow from one message already, which is the most",
        "Report what there is; the operator can raise subagents.maxPerChain.",
    )


def _by_depth(rules: Subagents, here: Requester) -> Refusal | None:
    if rules.max_spawn_depth == 0:
        return Refusal(
            "spawn_disabled",
            "spawning is switched off for this agent",
            "Do the work yourself; the operator can raise subagents.maxSpawnDepth.",
        )
    if here.depth >= rules.max_spawn_depth:
        return Refusal(
            "spawn_depth",
            f"this session lies {here.depth} deep; no deeper than {rules.max_spawn_depth} may be spawned",
            "Do the work yourself; the operator can raise subagents.maxSpawnDepth.",
        )
    return None


def _by_agent(wish: Wish, rules: Subagents, here: Requester) -> Refusal | None:
    own = wish.agent_id == here.agent_id
    if not own and not {wish.agent_id, ANY} & set(rules.allow_agents):
        named = ", ".join(sorted({here.agent_id, *rules.allow_agents}))
        return Refusal(
            "agent_not_allowed",
            f"agent {here.agent_id} may not spawn agent {wish.agent_id[:64]!r}",
            f"It may spawn: {named}. The operator can name more in subagents.allowAgents.",
        )
    if wish.agent_id not in here.known_agents:
        return Refusal(
            "unknown_agent",
            f"no agent {wish.agent_id[:64]!r}",
            f"There are: {', '.join(sorted(here.known_agents))}.",
            NotFound,
        )
    if not own and wish.context == "fork":
        return Refusal(
            "fork_other_agent",
            "another agent cannot be given this session's history",
            'Use context "isolated" and put what it needs into the task.',
        )
    return None


def _by_place(wish: Wish, here: Requester) -> Refusal | None:
    if here.sandboxed and not here.target_sandboxed:
        return Refusal(
            "sandbox_left",
            f"this session is sandboxed, and a child of agent {wish.agent_id} would not be",
            "Spawn an agent whose sessions are sandboxed too.",
        )
    if wish.sandbox == "require" and not here.target_sandboxed:
        return Refusal(
            "sandbox_unavailable",
            f"sessions of agent {wish.agent_id} are not sandboxed",
            'Leave out sandbox, or have the operator set sandbox.mode to "non-main".',
        )
    if wish.thread and not here.threads:
        return Refusal(
            "thread_unavailable",
            "threads cannot be opened from here",
            "Leave out thread; the result comes back to this session.",
            InvalidInput,
        )
    return None


def _by_room(rules: Subagents, here: Requester) -> Refusal | None:
    if here.live_children < rules.max_children_per_agent:
        return None
    return Refusal(
        "too_many_children",
        f"{here.live_children} subagents of this session are under way, which is the most",
        "Wait for one to come back: each returns by itself.",
        Busy,
    )


class SpawnInput(BaseModel):
    """Delegate a task to a subagent in a session of its own. Its result comes back to you by itself: do not
    wait or poll. Put all it needs to know into the task: it has not read what you have read."""

    model_config = ConfigDict(extra="forbid")

    task: Annotated[str, Field(min_length=1, max_length=64_000, description="What it is to do, in full.")]
    label: Annotated[str | None, Field(max_length=120, description="A short name for it.")] = None
    agentId: Annotated[  # noqa: N815
        str | None, Field(max_length=64, description="Another agent, where allowed; unset: yourself.")
    ] = None
    model: Annotated[str | None, Field(max_length=200, description="Model; unset: as configured.")] = None
    thinking: Annotated[Thinking | None, Field(description="Thinking level; unset: as configured.")] = None
    runTimeoutSeconds: Annotated[  # noqa: N815
        int | None, Field(ge=0, le=604_800, description="Longest run; 0: no limit.")
    ] = None
    thread: Annotated[bool, Field(description="Give it a thread of its own where you talk.")] = False
    mode: Annotated[
        Mode | None, Field(description="run: one task. session: it stays for more; the default with thread.")
    ] = None
    cleanup: Annotated[
        Cleanup | None, Field(description="delete: archive its session at once when it has ended.")
    ] = None
    sandbox: Annotated[SandboxWish, Field(description="require: only if it runs sandboxed.")] = "inherit"
    context: Annotated[
        ContextMode | None, Field(description="fork: it begins with your history. isolated: it begins empty.")
    ] = None
    expectsCompletionMessage: Annotated[  # noqa: N815
        bool, Field(description="false: its end gives you no turn; for one that speaks for itself.")
    ] = True

    def wish(self, own_agent: str) -> Wish:
        """The choices with their defaults: a thread's session stays, and knows what was said before it."""
        agent = own_agent if self.agentId is None else str(canonical_agent_id(self.agentId))
        forks = self.thread and agent == own_agent
        return Wish(
            agent_id=agent,
            thread=self.thread,
            mode=self.mode or ("session" if self.thread else "run"),
            context=self.context or ("fork" if forks else "isolated"),
            sandbox=self.sandbox,
        )


class SubagentsInput(BaseModel):
    """List the subagents of this session, stop one, or send one a message: a running one gets it within its
    run, one that has ended takes it as a further task."""

    model_config = ConfigDict(extra="forbid")

    action: Literal["list", "stop", "send"] = "list"
    target: Annotated[
        str | None, Field(max_length=1024, description="Its run, session key, id or label; or all (stop).")
    ] = None
    message: Annotated[str | None, Field(max_length=32_000, description="What to send.")] = None


Answer = dict[str, Any]
