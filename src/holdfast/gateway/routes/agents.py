"""`/api/agents`, `/api/models`, `/api/commands`, `/api/usage`: who can be asked, with what, at what cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Path, Query
from pydantic import Field
from starlette.responses import Response

from holdfast.agents.models import RECALL, Found
from holdfast.agents.policy import Policy, Situation, decide, exec_settings, policy_of
from holdfast.agents.policy.tools import Layer
from holdfast.agents.sandbox import backend_of, is_sandboxed
from holdfast.agents.tools import Toolbox
from holdfast.clock import Millis, iso
from holdfast.config.agents import Sandbox
from holdfast.context import FileReader, Workspace, configured_identity
from holdfast.errors import Unavailable
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Gateway, Here, Unlimited
from holdfast.gateway.contract import Answer, answer, answers
from holdfast.keys import parse_key
from holdfast.log import Turn, turns

router = APIRouter(tags=["agents"], route_class=StrictRoute)

DAY_MS: Final = 24 * 3600 * 1000
MAX_DAYS: Final = 92


class AgentOut(Answer):
    id: str
    name: str
    emoji: str | None
    default: bool = Field(description="It answers where nobody is named.")
    models: list[str] = Field(description="Those that it asks, in their order.")


class IdentityOut(Answer):
    """What the config says of an agent, and where it says nothing its IDENTITY.md."""

    name: str | None
    emoji: str | None
    creature: str | None
    vibe: str | None
    theme: str | None
    avatar: str | None


class StepOut(Answer):
    layer: Layer
    says: bool | None = Field(description="Null: no opinion.")
    reason: str


class ToolOut(Answer):
    name: str
    description: str
    effect: str
    allowed: bool
    layer: Layer = Field(description="Who decided.")
    reason: str
    steps: list[StepOut]


class SandboxOut(Answer):
    mode: str
    scope: str
    workspace_access: str
    network: bool
    backend: str | None = Field(description="What makes it here; null where it is off or cannot be had.")
    missing: str | None = Field(description="Why it cannot be had.")
    sandboxed: bool = Field(description="Whether the session that is asked about is in it.")


class AgentDetailOut(AgentOut):
    identity: IdentityOut
    workspace: str
    security: str
    ask: str
    thinking: str | None
    tools: list[ToolOut]
    sandbox: SandboxOut


class ModelOut(Answer):
    id: str = Field(description="As it is named in a config or with /model: provider/model.")
    provider: str
    via: Literal["config", "key", "server"]
    window: int | None


class ModelsOut(Answer):
    """`connected` is false where only the built-in recall model can answer."""

    models: list[ModelOut]
    default: str
    connected: bool
    looked_at: list[str] = Field(description="What was looked for, and what was there.")


class CommandOut(Answer):
    name: str
    help: str
    usage: str
    owner_only: bool


class SpentOut(Answer):
    """What one agent used of one model on one day (UTC)."""

    day: str
    agent_id: str
    model: str
    turns: int
    failed: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cost: float | None = Field(description="In dollars; null where no price is known.")
    seconds: float = Field(description="From the beginning of each turn to its end, added up.")


class UsageOut(Answer):
    rows: list[SpentOut]
    cut: bool = Field(description=f"There were more than {turns.MOST_LOOKED_AT:,} turns; the newest count.")


@router.get("/api/agents", response_model=list[AgentOut])
async def listing(here: Here, caller: Caller) -> Response:
    """The agents that the caller may ask."""
    config = here.hold.settings
    seen = [a.id for a in config.agent_list if caller.spaces is None and caller.may_see_agent(a.id)]
    own = caller.is_owner
    return answers(await here.hold.threads(lambda: [_agent(here, id_, own=own) for id_ in seen]))


@router.get("/api/agents/{id}", response_model=AgentDetailOut)
async def detail(
    here: Here,
    caller: Unlimited,
    id_: Annotated[str, Path(alias="id", max_length=256)],
    asked_by: Annotated[Literal["owner", "others", "subagent"], Query(alias="askedBy")] = "owner",
) -> Response:
    """Who an agent is, what it may use when it is asked by somebody, who decided that, and where it runs."""
    here.hold.settings.agent(id_)
    return answer(await here.hold.threads(_detail, here, id_, asked_by))


@router.get("/api/models", response_model=ModelsOut)
async def models(
    here: Here,
    caller: Unlimited,
    refresh: Annotated[bool, Query(description="Ask the servers on this machine again.")] = False,
) -> Response:
    """The models that can be asked: those of the config, those of keys, those of servers on this machine."""
    room = here.hold.agency.models
    found = await room.discover(refresh=refresh)
    listed = {one.id: one for one in _known(here, found)}
    chosen = room.choice(here.hold.settings.agent(here.hold.settings.default_agent_id))[0]
    rows = await room.report()
    return answer(
        ModelsOut(
            models=list(listed.values()),
            default=str(chosen),
            connected=chosen != RECALL,
            looked_at=[
                row.text if row.text.startswith(row.provider) else f"{row.provider}: {row.text}"
                for row in rows
            ],
        )
    )


@router.get("/api/commands", response_model=list[CommandOut])
async def commands(here: Here, caller: Caller) -> Response:
    """What can be typed behind a `/`, in any chat; answered by the runtime itself."""
    return answers(
        [
            CommandOut(name=one.name, help=one.help, usage=one.usage, owner_only=one.owner_only)
            for one in here.hold.runs.commands.listed
            if caller.is_owner or not one.owner_only
        ]
    )


@router.get("/api/usage", response_model=UsageOut)
async def usage(
    here: Here, caller: Unlimited, days: Annotated[int, Query(ge=1, le=MAX_DAYS)] = 30
) -> Response:
    """Tokens, cost and time by day, agent and model, newest day first."""
    now = here.hold.clock.now()
    since = Millis(now - now % DAY_MS - (days - 1) * DAY_MS)

    def read() -> list[Turn]:
        with here.read_as(caller) as tx:
            return turns.recent(tx, since=since, limit=turns.MOST_LOOKED_AT)

    found = await here.hold.threads(read)
    return answer(UsageOut(rows=spent(found), cut=len(found) >= turns.MOST_LOOKED_AT))


def spent(found: Iterable[Turn]) -> list[SpentOut]:
    """What turns used, added up by day, agent and model; commands, which ask no model, are left out."""
    sums: dict[tuple[str, str, str], SpentOut] = {}
    for turn in found:
        if turn.model is None and not turn.usage:
            continue
        day = iso(turn.accepted_at)[:10]
        agent = parse_key(turn.session_key).agent_id or ""
        key = (day, agent, turn.model or "unknown")
        sums[key] = _added(sums.get(key) or _nothing(*key), turn)
    return sorted(sums.values(), key=lambda row: (row.day, row.agent_id, row.model), reverse=True)


def _added(row: SpentOut, turn: Turn) -> SpentOut:
    used = turn.usage or {}
    cost = used.get("cost")
    took = (turn.ended_at or turn.accepted_at) - (turn.started_at or turn.ended_at or turn.accepted_at)
    return row.model_copy(
        update={
            "turns": row.turns + 1,
            "failed": row.failed + (turn.status == "failed"),
            "input_tokens": row.input_tokens + int(used.get("inputTokens", 0)),
            "output_tokens": row.output_tokens + int(used.get("outputTokens", 0)),
            "cache_read_tokens": row.cache_read_tokens + int(used.get("cacheReadTokens", 0)),
            "cost": row.cost if cost is None else (row.cost or 0.0) + float(cost),
            "seconds": row.seconds + took / 1000,
        }
    )


def _nothing(day: str, agent_id: str, model: str) -> SpentOut:
    counts: dict[str, Any] = dict.fromkeys(("turns", "failed", "input_tokens", "output_tokens"), 0)
    return SpentOut(
        day=day, agent_id=agent_id, model=model, cache_read_tokens=0, cost=None, seconds=0.0, **counts
    )


def _agent(here: Gateway, id_: str, *, own: bool) -> AgentOut:
    """As the config calls it; to the owner also as its IDENTITY.md does."""
    config = here.hold.settings
    settings = config.agent(id_)
    known = here.hold.context.workspace(id_).identity(settings) if own else configured_identity(settings)
    return AgentOut(
        id=id_,
        name=known.name or id_,
        emoji=known.emoji,
        default=id_ == config.default_agent_id,
        models=[str(ref) for ref in here.hold.agency.models.choice(settings)],
    )


def _detail(here: Gateway, id_: str, asked_by: str) -> AgentDetailOut:
    hold, agency = here.hold, here.hold.agency
    config, settings = hold.settings, hold.settings.agent(id_)
    sandbox = _sandbox(settings.sandbox, id_, asked_by)
    model = agency.models.choice(settings)[0]
    situation = Situation(
        provider=model.provider,
        model=model.model,
        is_owner=asked_by == "owner",
        sandboxed=sandbox.sandboxed,
        subagent=asked_by == "subagent",
        may_spawn=settings.subagents.max_spawn_depth > 1,
    )
    commands = exec_settings(config, id_)
    return AgentDetailOut(
        **_agent(here, id_, own=True).model_dump(),
        identity=IdentityOut(**asdict(Workspace(hold.workspace(id_), FileReader()).identity(settings))),
        workspace=str(hold.workspace(id_)),
        security=commands.security,
        ask=commands.ask,
        thinking=settings.thinking_default,
        tools=_tools(agency.tools, policy_of(config, id_), situation),
        sandbox=sandbox,
    )


def _tools(box: Toolbox, policy: Policy, situation: Situation) -> list[ToolOut]:
    rows = []
    for name in box.names:
        found, tool = decide(name, policy, situation, box.names), box.get(name)
        rows.append(
            ToolOut(
                name=name,
                description=tool.spec.description,
                effect=tool.effect.value,
                allowed=found.allowed,
                layer=found.layer,
                reason=found.reason,
                steps=[StepOut(layer=s.layer, says=s.says, reason=s.reason) for s in found.steps],
            )
        )
    return rows


def _sandbox(settings: Sandbox, agent_id: str, asked_by: str) -> SandboxOut:
    """As it would be for the main session, for a chat that others hear, or for a subagent's."""
    sessions = {"owner": "main", "others": "web:group:others", "subagent": "subagent:one"}
    inside = asked_by == "others" or is_sandboxed(settings, f"agent:{agent_id}:{sessions[asked_by]}")
    backend = missing = None
    try:
        backend = backend_of(settings).name if inside else None
    except Unavailable as error:
        missing = error.message
    return SandboxOut(
        mode=settings.mode,
        scope="session" if asked_by == "others" else settings.scope,
        workspace_access="none" if asked_by == "others" else settings.workspace_access,
        network=settings.network,
        backend=backend,
        missing=missing,
        sandboxed=inside,
    )


def _known(here: Gateway, found: Sequence[Found]) -> Iterable[ModelOut]:
    for name, provider in here.hold.settings.models.providers.items():
        for entry in provider.models:
            yield ModelOut(id=f"{name}/{entry.id}", provider=name, via="config", window=entry.context_window)
    for one in found:
        windows = {name: facts.window for name, facts in one.served}
        for model in one.models:
            yield ModelOut(
                id=f"{one.provider}/{model}", provider=one.provider, via=one.kind, window=windows.get(model)
            )
