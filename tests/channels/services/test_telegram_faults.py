"""What goes wrong on Telegram: a token that is revoked, a second poller, updates twice and out of order."""

from __future__ import annotations

from pathlib import Path

from service_stage import opened, stage
from serving import wait_for
from telegram_server import GROUP, TelegramServer

from holdfast.clock import ManualClock
from holdfast.plugins_bundled.service import BAD_TOKEN_MS
from holdfast.plugins_bundled.telegram import html


def test_updates_come_twice_and_a_second_poller_and_a_revoked_token_lose_nothing(
    home: Path, tmp_path: Path
) -> None:
    with opened("telegram", tmp_path) as service:
        assert isinstance(service, TelegramServer)
        service.repeat_updates = 3
        service.poll_faults = [(409, "Conflict: terminated by other getUpdates request"), "cut"]
        clock = ManualClock()
        with stage(home, service, clock=clock) as there:
            for number in range(3):
                service.say(f"number {number}")
            service.answered(3)
            there.settled()
            service.token_is_good = False
            there.gateway.hold.agency.channels.send(f"telegram:dm:{service.owner}", "by hand")
            wait_for(lambda: "token is not good" in there.api.get("/api/deliveries").text)
            service.say("are you still there")
            wait_for(lambda: service.refused > 2)
            service.token_is_good = True
            clock.advance(ms=BAD_TOKEN_MS)
            there.gateway.hold.store.signals.notify_all()
            service.answered(5)
            there.settled()
        expected = [*(f"Re: number {number}" for number in range(3)), "by hand", "Re: are you still there"]
        assert service.shown() == expected


def test_markdown_becomes_the_tags_that_telegram_shows_and_nothing_else_does() -> None:
    assert (
        html("# Tide\n**High** at `12:00` <b>") == "<b>Tide</b>\n<b>High</b> at <code>12:00</code> &lt;b&gt;"
    )
    assert html("```py\nif a < b: `x`\n```\nso") == (
        '<pre><code class="language-py">if a &lt; b: `x`</code></pre>\nso'
    )
    assert html("[here](https://a.example/?q=1&r=2)") == '<a href="https://a.example/?q=1&amp;r=2">here</a>'
    assert html("2 * 3 ** 4 and _this_") == "2 * 3 ** 4 and _this_"


def test_two_accounts_are_two_bots_and_bindings_tell_them_and_their_people_apart(
    home: Path, tmp_path: Path
) -> None:
    with opened("telegram", tmp_path) as work, opened("telegram", tmp_path) as family:
        accounts = {"work": work.channel(), "family": family.channel()}
        bindings = [
            {"agentId": "clerk", "match": {"channel": "telegram", "accountId": "work"}},
            {"agentId": "nurse", "match": {"channel": "telegram", "peer": {"kind": "group", "id": GROUP}}},
        ]
        agents = [{"id": name} for name in ("main", "clerk", "nurse")]
        more = {"bindings": bindings, "agents": {"list": agents}}
        with stage(home, work, more, options={}, accounts=accounts) as there:
            work.say("for the clerk")
            family.say("for the main one")
            family.say("for the nurse", group=True, mention=True)
            assert work.answered(1) == ["Re: for the clerk"]
            assert family.answered(1) == ["Re: for the main one"]
            family.answered(1, group=True)
            there.settled()
            keys = {one["sessionKey"] for one in there.api.get("/api/sessions").json()}
        assert {name.split(":")[1]: name.rsplit(":", 2)[1] for name in keys} == {
            "clerk": "dm",
            "main": "dm",
            "nurse": "group",
        }
        assert (len(work.shown()), len(family.shown())) == (1, 1)
