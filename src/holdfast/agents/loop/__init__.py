"""The turn loop: from a message to a committed reply.

runs = Runs(LoopParts(store=store, threads=threads, config=config, ...))
runs.register(runner)
accepted = await runs.accept(Ask(text="hello"))
async for event in runs.subscribe(accepted.run_id): ...
status = await runs.wait(accepted.run_id)
"""

from holdfast.agents.loop.asks import Accepted, Ask, Deliver, Form, Mode
from holdfast.agents.loop.events import Hub, RunEvent
from holdfast.agents.loop.parts import Answers, LoopParts, ParsedReply, Toolset, TurnEnd, TurnHook
from holdfast.agents.loop.run_status import RunStatus
from holdfast.agents.loop.runs import Runs
from holdfast.agents.loop.turn import TurnLoop

__all__ = [
    "Accepted",
    "Answers",
    "Ask",
    "Deliver",
    "Form",
    "Hub",
    "LoopParts",
    "Mode",
    "ParsedReply",
    "RunEvent",
    "RunStatus",
    "Runs",
    "Toolset",
    "TurnEnd",
    "TurnHook",
    "TurnLoop",
]
