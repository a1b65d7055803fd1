"""What agents say reaches people: in blocks, in order, once, whatever happens in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from channel_stage import PARAGRAPHS, REPLY, SECRET, call, configure, ended, far_end, killable, stage
from serving import running, wait_for

from holdfast.agents.cron.webhooks import signed_call
from holdfast.channels.speech import ANEW
from holdfast.clock import ManualClock, SystemClock
from holdfast.runtime import open_home
from holdfast.testing import Call, Say, ScriptedOpenAI, Stall, broken


def test_a_reply_arrives_in_blocks_in_order_and_once(home: Path) -> None:
    with stage(home, [Say(REPLY, chunks=40, pause=0.004)]) as there:
        told = there.write("When is high tide?")
        assert told["httpStatus"] == 202, told
        assert (told["state"], told["duplicate"]) == ("answered", False)
        there.run(told)
        assert there.end.arrived(3) == PARAGRAPHS
        posts = there.end.posts
        assert [post.body.get("block") for post in posts] == [1, 2, None]
        assert [post.body["final"] for post in posts] == [False, False, True]
        assert len({post.headers["idempotency-key"] for post in posts}) == 3
        for post in posts:
            assert post.body["to"] == {"kind": "dm", "id": "ada"}
            signed_call(SECRET.encode(), post.headers, post.raw, SystemClock().now(), 60_000)
        again = call(there.gateway.url, _first_message("When is high tide?"))
        assert (again["httpStatus"], again["duplicate"], again["runId"]) == (200, True, told["runId"])
        there.settled()
        assert there.end.texts == PARAGRAPHS
        (channel,) = [one for one in there.api.get("/api/channels").json() if one["adapter"] != "web"]
        assert (channel["state"], channel["adapter"]) == ("connected", "webhook")
        assert channel["pendingDeliveries"] == 0
        assert channel["lastInboundAt"] <= channel["lastOutboundAt"]
        states = {d["status"] for d in there.api.get("/api/deliveries").json()}
        assert states == {"delivered"}


def test_what_is_said_before_a_tool_call_is_sent_and_silence_is_not(home: Path) -> None:
    script = [
        Call("session_status", {}, text="I look at the table."),
        Say("It is noon. CONTINUE_WORK"),
        Say("NO_REPLY", chunks=8, pause=0.002),
        Call("session_status", {}),
        Say("HEARTBEAT_OK"),
        Say("Bye."),
    ]
    on = {"continuation": {"enabled": True, "defaultDelayMs": 300_000}}
    with stage(home, script, agent=on) as there:
        for text in ("Look it up.", "Do not answer.", "Nor now.", "Bye."):
            there.run(there.write(text))
        there.settled()
        assert there.end.texts == ["I look at the table.", "It is noon.", "Bye."]


def test_what_one_person_says_at_once_is_one_turn(home: Path) -> None:
    clock = ManualClock()
    with stage(home, [Say("Both.")], debounce=200, clock=clock) as there:
        first, second = there.write("One more."), there.write("And another.")
        assert first["runId"] == second["runId"]
        clock.advance(ms=200)
        there.run(first)
        there.settled()
        assert there.end.texts == ["Both."]


def test_a_kill_between_blocks_sends_nothing_twice(home: Path) -> None:
    with far_end() as end, ScriptedOpenAI([Stall(f"{PARAGRAPHS[0]}\n\n{PARAGRAPHS[1]}\n\nIn the")]) as model:
        configure(home, model.url, end.url, {})
        with killable(home) as url:
            run = call(url, _first_message("When is high tide?"))["runId"]
            assert end.arrived(2) == PARAGRAPHS[:2]
        model.add(Say(REPLY, chunks=9))
        with open_home(home) as hold, running(hold) as gateway, gateway.client(gateway.admin) as api:
            ended(api, run)
            assert end.arrived(3) == PARAGRAPHS
            wait_for(lambda: not api.get("/api/deliveries", params={"status": "pending"}).json())
        assert end.texts == PARAGRAPHS


def test_a_reply_that_is_another_after_a_stop_is_sent_whole_with_a_note(home: Path) -> None:
    with stage(home, [Stall(f"{PARAGRAPHS[0]}\n\nThe")]) as there:
        there.write("When is high tide?")
        assert there.end.arrived(1) == PARAGRAPHS[:1]
    with stage(home, [Say("There is no tide today.")]) as there:
        assert there.end.arrived(2) == [ANEW, "There is no tide today."]
        there.settled()
        assert len(there.end.texts) == 2


def test_what_cannot_be_sent_is_tried_again_in_order_and_a_final_no_is_shown(home: Path) -> None:
    with stage(home, [Say("One."), Say("Two."), Say("Three.")], streaming="off") as there:
        there.end.refusals = [(429, {"retry-after": "0"}), (503, {}), (200, {}), (200, {}), (400, {})]
        for text in ("a", "b", "c"):
            there.run(there.write(text))
        there.settled()
        assert there.end.texts == ["One.", "Two."]
        assert [post.text for post in there.end.refused] == ["One.", "One.", "Three."]
        assert len({post.body["idempotencyKey"] for post in there.end.refused[:2]}) == 1
        (failed,) = there.api.get("/api/deliveries", params={"status": "failed"}).json()
        assert (failed["error"], failed["attempts"]) == ("the receiver answered 400", 1)


def test_a_preview_is_edited_into_the_reply_where_that_can_be(home: Path) -> None:
    options: dict[str, Any] = {"streaming": "partial", "takesEdits": True}
    options["blockStreamingChunk"] = {"editMs": 50}
    with stage(home, [Say(REPLY, chunks=30, pause=0.02)], **options) as there:
        there.run(there.write("When is high tide?"))
        there.settled()
        first, *edits = there.end.posts
        assert first.body["type"] == "message"
        assert {edit.body["type"] for edit in edits} == {"message.edit"}
        assert {edit.body["messageId"] for edit in edits} == {"sent-1"}
        assert edits[-1].text == REPLY
        assert all(REPLY.startswith(post.text) for post in there.end.posts)


def test_a_line_tells_what_is_done_and_becomes_the_reply(home: Path) -> None:
    options: dict[str, Any] = {"streaming": "progress", "takesEdits": True}
    options["blockStreamingChunk"] = {"editMs": 50}
    with stage(home, [Call("session_status", {}, text="I look."), Say(REPLY, pause=0.1)], **options) as there:
        there.run(there.write("When is high tide?"))
        there.settled()
        assert there.end.texts == ["…"]
        edits = [post.text for post in there.end.posts[1:]]
        assert edits[-1] == REPLY
        assert set(edits[:-1]) <= {"… session_status"}


def test_a_long_reply_is_split_and_a_failure_tells_strangers_nothing(home: Path) -> None:
    def answer(asked: Any) -> Any:
        return Say(REPLY) if "tide" in asked.last_text else broken()

    rules = {"streaming": "off", "textChunkLimit": 120, "dmPolicy": "open", "replyToMode": "first"}
    with stage(home, answer, **rules) as there:
        there.run(there.write("the tide?"))
        there.settled()
        assert "\n\n".join(there.end.texts) == REPLY
        assert [len(text) <= 120 for text in there.end.texts] == [True, True]
        assert [post.body.get("replyTo") for post in there.end.posts] == ["m1", None]
        there.run(there.write("fail", sender={"id": "eve"}, peer={"kind": "dm", "id": "eve"}))
        there.settled()
        assert "could not answer" in there.end.texts[-1]
        assert "scripted" not in there.end.texts[-1]


def _first_message(text: str) -> dict[str, Any]:
    sender = {"id": "ada", "name": "Ada"}
    return {"id": "m1", "text": text, "sender": sender, "peer": {"kind": "dm", "id": "ada"}}
