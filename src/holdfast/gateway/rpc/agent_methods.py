"""`agent.*`: the methods that start runs and look after them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from holdfast.gateway import asking, run_stream
from holdfast.gateway.asking import AgentIn, require_own_run, require_run
from holdfast.gateway.rpc.methods import Methods
from holdfast.gateway.rpc.peer import Peer
from holdfast.gateway.tokens import Scope
from holdfast.gateway.wire import Wire

MAX_WAIT_MS = 300_000

methods = Methods()


class AskIn(AgentIn):
    """As the body of `POST /api/agent`; `stream` asks for the run's events."""

    stream: bool = True


class RunIn(Wire):
    run_id: Annotated[str, Field(min_length=1, max_length=256)]


class WaitIn(RunIn):
    timeout_ms: Annotated[int, Field(ge=0, le=MAX_WAIT_MS)] = 30_000


async def send(peer: Peer, sent: AskIn) -> dict[str, Any]:
    """Ask, and follow the run if that is wanted and it was not answered at once."""
    accepted = await asking.accept(peer.here, peer.caller, sent.ask(peer.caller))
    if sent.stream and accepted.reply is None:
        peer.follow_run(accepted.run_id)
    return accepted.json()


@methods.add("agent", AskIn, Scope.WRITE)
async def ask(peer: Peer, sent: AskIn) -> dict[str, Any]:
    return await send(peer, sent)


@methods.add("agent.steer", AskIn, Scope.WRITE)
async def steer(peer: Peer, sent: AskIn) -> dict[str, Any]:
    """A message for the turn that runs; if none does any more, it is a turn of its own."""
    return await send(peer, sent.model_copy(update={"mode": "steer"}))


@methods.add("agent.wait", WaitIn)
async def wait(peer: Peer, sent: WaitIn) -> dict[str, Any]:
    await require_run(peer.here, peer.caller, sent.run_id)
    return (await run_stream.ended(peer.here, sent.run_id, sent.timeout_ms / 1000)).json()


@methods.add("agent.status", RunIn)
async def status(peer: Peer, sent: RunIn) -> dict[str, Any]:
    await require_run(peer.here, peer.caller, sent.run_id)
    return (await peer.here.hold.runs.status(sent.run_id)).json()


@methods.add("agent.cancel", RunIn, Scope.WRITE)
async def cancel(peer: Peer, sent: RunIn) -> dict[str, Any]:
    await require_own_run(peer.here, peer.caller, sent.run_id)
    return (await peer.here.hold.runs.cancel(sent.run_id)).json()


@methods.add("agent.resume", RunIn, Scope.WRITE)
async def resume(peer: Peer, sent: RunIn) -> dict[str, Any]:
    await require_own_run(peer.here, peer.caller, sent.run_id)
    status = await peer.here.hold.runs.resume(sent.run_id)
    peer.follow_run(sent.run_id)
    return status.json()


@methods.add("agent.subscribe", RunIn)
async def subscribe(peer: Peer, sent: RunIn) -> dict[str, Any]:
    """The events of a run that is there already: what it has said so far, then what it says."""
    await require_run(peer.here, peer.caller, sent.run_id)
    peer.follow_run(sent.run_id)
    return {"runId": sent.run_id, "subscribed": True}


@methods.add("agent.unsubscribe", RunIn)
async def unsubscribe(peer: Peer, sent: RunIn) -> dict[str, Any]:
    return {"runId": sent.run_id, "unsubscribed": peer.unfollow_run(sent.run_id)}
