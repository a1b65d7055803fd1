"""Scripted model servers on loopback, for tests of anything that speaks to a model. Real HTTP, no network.

    from holdfast.testing import Call, Calls, Say, ScriptedAnthropic, ScriptedOpenAI, cut_off, rate_limited

    with ScriptedOpenAI([Call("file_read", {"path": "a"}), Say("It says hello.")]) as server:
        ...  # point a provider's `baseUrl` at `server.url`; any key will do
        assert server.requests[0].tools == ["file_read"]
        assert server.requests[1].messages[-1]["role"] == "tool"

A script is a list of turns, given out in the order of asking, or a function from the request to a turn;
a turn in a list may be such a function too. When a list is at its end the server answers 400 and says so.
`async with` works as well, and there are `ScriptedGoogle` and `ScriptedResponses` too. The servers take
streaming and plain requests, and list `models` under `/v1/models`. What can go wrong is a turn like any
other:

    [rate_limited(retry_after=2), overloaded(), unauthorised(), no_credit(), too_long(), broken(),
     Fail(404, "no such model"), Malformed(), cut_off("half an ans"), Stall("and then nothing"),
     Call("file_read", '{"path": '), Call("no_such_tool", {}), Calls(Call("a", {}), Call("b", {}))]

`Say("slowly", pause=0.05)` drips; `used=Used(input=900, output=12, cache_read=800)` sets what is billed.
"""

from holdfast.testing.anthropic import ScriptedAnthropic
from holdfast.testing.google import ScriptedGoogle
from holdfast.testing.openai import ScriptedOpenAI, ScriptedResponses
from holdfast.testing.script import (
    Asked,
    Call,
    Calls,
    CutOff,
    Fail,
    Malformed,
    Say,
    Script,
    Stall,
    Turn,
    Used,
    broken,
    cut_off,
    no_credit,
    overloaded,
    rate_limited,
    too_long,
    unauthorised,
)
from holdfast.testing.server import ScriptedServer

__all__ = [
    "Asked",
    "Call",
    "Calls",
    "CutOff",
    "Fail",
    "Malformed",
    "Say",
    "Script",
    "ScriptedAnthropic",
    "ScriptedGoogle",
    "ScriptedOpenAI",
    "ScriptedResponses",
    "ScriptedServer",
    "Stall",
    "Turn",
    "Used",
    "broken",
    "cut_off",
    "no_credit",
    "overloaded",
    "rate_limited",
    "too_long",
    "unauthorised",
]
