"""What goes wrong on Slack: sockets that end, events that come again, a token that is revoked."""

from __future__ import annotations

from pathlib import Path

from service_stage import opened, stage
from serving import wait_for
from slack_server import SlackServer

from holdfast.plugins_bundled.slack import plain, slack_text


def test_dropped_sockets_and_repeated_events_lose_nothing_and_double_nothing(
    home: Path, tmp_path: Path
) -> None:
    with opened("slack", tmp_path) as service:
        assert isinstance(service, SlackServer)
        rule = {"agentId": "clerk", "match": {"channel": "slack", "teamId": "T1"}}
        more = {"bindings": [rule], "agents": {"list": [{"id": "main"}, {"id": "clerk"}]}}
        with stage(home, service, more) as there:
            service.say("number 0")
            service.answered(1)
            service.repeat_last()
            service.drop_sockets()
            service.say("number 1")
            wait_for(lambda: service.connections >= 2)
            service.answered(2)
            service.token_is_good = False
            there.gateway.hold.agency.channels.send("slack:dm:UADA", "by hand")
            wait_for(lambda: "token_revoked" in there.api.get("/api/deliveries").text)
            service.token_is_good = True
            keys = {one["sessionKey"] for one in there.api.get("/api/sessions").json()}
        assert all(key.startswith("agent:clerk:") for key in keys)
        assert service.shown() == ["Re: number 0", "Re: number 1"]


def test_words_are_written_as_slack_writes_them_both_ways() -> None:
    said = "# Tide\n**High** `a < **b**` [here](https://a.example)"
    assert slack_text(said) == "*Tide*\n*High* `a &lt; **b**` <https://a.example|here>"
    assert plain("<@U1> see <https://a.example|this> &amp; <#C1|harbour>") == "@U1 see this & harbour"
