"""What `sessions_spawn` takes, and what is settled from it before anything is written."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from holdfast.agents.subagents.checks import SandboxWish, Wish
from holdfast.agents.subagents.registry import Cleanup, ContextMode, Mode
from holdfast.config.agents import Thinking
from holdfast.keys import canonical_agent_id


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
