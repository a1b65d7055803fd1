"""What goes wrong on Discord: sockets that end, sessions that are over, events again, a revoked token."""

from __future__ import annotations

from pathlib import Path

from discord_server import GUILD, DiscordServer
from service_stage import opened, stage
from serving import wait_for


def test_dropped_sockets_ended_sessions_and_a_revoked_token_lose_nothing_and_double_nothing(
    home: Path, tmp_path: Path
) -> None:
    with opened("discord", tmp_path) as service:
        assert isinstance(service, DiscordServer)
        at_work = {"channel": "discord", "accountId": "work"}
        bindings = [
            {"agentId": "clerk", "match": {**at_work, "guildId": GUILD}},
            {"agentId": "nurse", "match": at_work},
        ]
        agents = [{"id": name} for name in ("main", "clerk", "nurse")]
        more = {"bindings": bindings, "agents": {"list": agents}}
        accounts = {"work": service.channel()}
        with stage(home, service, more, options={}, accounts=accounts) as there:
            service.say("number 0")
            service.answered(1)
            service.repeat_last()
            service.drop_sockets()
            service.say("number 1")
            wait_for(lambda: service.resumed == 1)
            service.answered(2)
            assert service.identified == 1
            service.resumable = False
            service.drop_sockets()
            service.say("number 2")
            wait_for(lambda: service.identified == 2)
            service.answered(3)
            service.say("for the clerk", group=True, mention=True)
            service.answered(1, group=True)
            service.token_is_good = False
            there.gateway.hold.agency.channels.send("discord/work:dm:7", "by hand")
            wait_for(lambda: "token is not good" in there.api.get("/api/deliveries").text)
            service.drop_sockets()
            wait_for(lambda: service.refused > 1)
            service.say("while it was away", group=True, mention=True)
            service.token_is_good = True
            assert service.answered(2, group=True)[1].endswith("while it was away")
            keys = {one["sessionKey"] for one in there.api.get("/api/sessions").json()}
        assert {key.split(":")[1] for key in keys} == {"clerk", "nurse"}
        assert service.shown() == [f"Re: number {number}" for number in range(3)]
        assert service.beats > 0
