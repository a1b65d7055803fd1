"""What every chat service does alike, seen by the people who use it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from service_stage import CODE, PNG, Stage
from serving import wait_for

from holdfast.agents.approvals import ApprovalRequest, requests
from holdfast.board import attachments
from holdfast.log import OWNER, SYSTEM, Tx
from holdfast.people import Role, contacts, users


@pytest.fixture
def people(there: Stage) -> Iterator[None]:
    """Chats that a test links to people are strangers' again after it."""
    yield
    with there.gateway.hold.store.write(SYSTEM) as tx:
        for one in contacts.of(tx):
            contacts.unlink(tx, users.get(tx, one.user_id), one.handle)


def test_messages_are_answered_once_and_in_order(there: Stage) -> None:
    service = there.service
    before = len(service.shown())
    for number in range(5):
        service.say(f"number {number}")
    there_now = service.answered(before + 5)
    there.settled()
    assert there_now[before:] == [f"Re: number {number}" for number in range(5)]
    assert len(service.shown()) == before + 5


@pytest.mark.needs("groups")
def test_a_group_is_answered_when_it_speaks_to_the_agent_and_told_what_was_said_before(there: Stage) -> None:
    service = there.service
    service.say("mark-before lies here", sender="8", group=True)
    before = len(service.shown(group=True))
    service.say("what do you see", group=True, mention=True)
    assert "mark-before" in service.answered(before + 1, group=True)[-1]
    there.settled()
    service.say("thanks, and", group=True, reply_to=service.last_id())
    assert service.answered(before + 2, group=True)[-1].endswith("thanks, and")


@pytest.mark.needs("strangers")
def test_a_stranger_is_given_a_code_and_answered_once_let_in(there: Stage) -> None:
    service = there.service
    before = len(service.shown(sender="8"))
    service.say("let me in", sender="8")
    hello = service.answered(before + 1, sender="8")[-1]
    [waiting] = there.gateway.hold.agency.channels.pairings()
    assert waiting["code"] in hello
    there.gateway.hold.agency.channels.approve(waiting["code"])
    service.answered(before + 2, sender="8")
    service.say("now then", sender="8")
    assert service.answered(before + 3, sender="8")[-1] == "Re: now then"


def test_a_long_answer_comes_in_several_messages_with_its_code_whole(there: Stage) -> None:
    service = there.service
    before = len(service.shown())
    service.say("say something long")
    wait_for(lambda: service.shown() and service.shown()[-1].rstrip().endswith("And the end."))
    made = service.shown()[before:]
    if service.most_chars < len(CODE):
        assert len(made) > 1
    lines = "\n".join(made).splitlines()
    assert [line for line in lines if line.startswith("line_")] == CODE.splitlines()
    assert all(text.count("```") % 2 == 0 for text in made)


@pytest.mark.needs("files")
def test_files_come_in_and_go_out(there: Stage) -> None:
    service = there.service
    before = len(service.shown())
    service.say("what do you see", file=("dot.png", "image/png", PNG))
    said = service.answered(before + 1)[-1]
    service.say("what do you see", file=("note.txt", "text/plain", b"mark-inside a file"))
    assert "mark-inside" in service.answered(before + 2)[-1]
    with there.gateway.hold.store.read(OWNER) as tx:
        entry = tx.conn.exec_driver_sql("select entry_id from attachments order by id limit 1").scalar()
        assert [one.file_name for one in attachments.of_entry(tx, str(entry))] == ["dot.png"]
    assert "1 pictures" in said
    workspace = there.gateway.hold.workspace("main")
    assert any(path.read_bytes() == PNG for path in (workspace / "inbox").iterdir())
    (workspace / "tide.csv").write_text("high,low\n")
    service.say(f"do {json.dumps({'action': 'send', 'text': 'Here.', 'attachments': ['tide.csv']})}")
    wait_for(lambda: any("tide.csv" in text for text in service.shown()))


@pytest.mark.needs("threads", "groups")
def test_a_thread_has_a_session_of_its_own_and_the_agent_opens_and_speaks_in_one(there: Stage) -> None:
    service = there.service
    deed = {"action": "thread-create", "threadName": "Tides", "text": "Let us talk here."}
    service.say(f"do {json.dumps(deed)}", group=True, mention=True)
    wait_for(lambda: any("threadId" in one for one in service.shown(group=True)[-1:]))
    told = service.shown(group=True)[-1]
    thread = json.loads(told[told.index("{") :])["threadId"]
    assert service.answered(1, group=True, thread=thread) == ["Let us talk here."]
    service.say("and here I answer", group=True, thread=thread, mention=True)
    assert service.answered(2, group=True, thread=thread)[-1].endswith("and here I answer")
    keys = {one["sessionKey"] for one in there.api.get("/api/sessions").json()}
    assert any(key.endswith(f":thread:{thread}") for key in keys)


@pytest.mark.needs("edits")
def test_what_people_change_and_take_back_is_followed(there: Stage) -> None:
    service = there.service
    before = len(service.shown())
    first = service.say("remember mark-old please")
    service.answered(before + 1)
    service.change(first, "remember mark-new please")
    store = there.gateway.hold.store

    def logged(word: str) -> bool:
        with store.read(OWNER) as tx:
            query = "select count(*) from entries where role='user' and deleted_at is null and content like ?"
            return bool(tx.conn.exec_driver_sql(query, (f"%{word}%",)).scalar())

    wait_for(lambda: logged("mark-new"))
    service.say("what do you see")
    assert "mark-new" in service.answered(before + 2)[-1]
    if not service.deletes:
        return
    second = service.say("remember mark-gone please")
    service.answered(before + 3)
    service.take_back(second)
    wait_for(lambda: not logged("mark-gone"))


@pytest.mark.needs("reacts")
def test_signs_go_both_ways(there: Stage) -> None:
    service = there.service
    before = len(service.shown())
    theirs = service.say("put a sign to this")
    service.answered(before + 1)
    service.say(f"do {json.dumps({'action': 'react', 'messageId': theirs, 'text': '👍'})}")
    wait_for(lambda: "👍" in service.signs())
    service.answered(before + 2)
    there.settled()
    service.react(service.last_id(), "🎉")

    def noted() -> bool:
        with there.gateway.hold.store.read(OWNER) as tx:
            return bool(tx.conn.exec_driver_sql("select count(*) from notes where text like '%🎉%'").scalar())

    wait_for(noted)


@pytest.mark.needs("types")
def test_it_is_seen_that_an_answer_is_being_written(there: Stage) -> None:
    service = there.service
    before = len(service.shown())
    service.say("are you there")
    service.answered(before + 1)
    wait_for(service.typed)


@pytest.mark.needs("faults")
def test_limits_are_kept_to_and_what_was_cut_off_is_not_said_twice(there: Stage) -> None:
    service = there.service
    before = len(service.shown())
    service.limit_next()
    service.say("after a while")
    service.answered(before + 1)
    service.cut_next()
    service.say("only once")
    service.say("and then")
    service.answered(before + 3)
    there.settled()
    assert service.shown()[before:] == ["Re: after a while", "Re: only once", "Re: and then"]


@pytest.mark.needs("grows")
def test_a_reply_grows_by_changing_one_message(there: Stage) -> None:
    service = there.service
    config = there.gateway.hold.config
    config.patch(
        {"channels": {service.name: {"streaming": "partial", "blockStreamingChunk": {"editMs": 50}}}}
    )
    before, changes = len(service.shown()), service.changes()
    service.say("say something long")
    wait_for(lambda: service.shown()[before:] and service.shown()[-1].rstrip().endswith("And the end."))
    there.settled()
    config.patch({"channels": {service.name: {"streaming": "off"}}})
    lines = "\n".join(service.shown()[before:]).splitlines()
    assert [line for line in lines if line.startswith("line_")] == CODE.splitlines()
    assert service.changes() > changes


@pytest.mark.needs("buttons")
@pytest.mark.usefixtures("people")
def test_a_button_is_for_who_may_decide_and_the_message_shows_what_they_chose(there: Stage) -> None:
    service, hold = there.service, there.gateway.hold
    before = len(service.notices())
    command = "rm tide.csv"
    wish = ApprovalRequest(
        agent_id="main", tool="exec", command=command, arguments={"command": command}, reason="not listed"
    )
    with hold.store.write(SYSTEM) as tx:
        name = _linked(tx, service.name, service.owner, "ann")
    rule = {"tools": ["exec"], "approvers": [name], "private": True}
    hold.config.patch({"teams": {"approvals": {"rules": [rule]}}})
    with hold.store.write(SYSTEM) as tx:
        id_ = requests.request(tx, wish, lasts_ms=3_600_000).id

    def status() -> str:
        with hold.store.read(SYSTEM) as tx:
            return requests.get(tx, id_).status.value

    wait_for(lambda: service.offered() == ["Approve", "Deny"])
    service.press("Approve", sender="8")
    wait_for(lambda: len(service.notices()) == before + 1)
    assert "people who are known here" in service.notices()[-1]
    assert (status(), service.offered()) == ("pending", ["Approve", "Deny"])
    service.press("Deny")
    wait_for(lambda: f"exec ({id_}) is denied by {name}." in service.shown()[-1])
    assert (status(), service.offered()) == ("denied", [])
    assert command in service.shown()[-1]
    there.settled()
    wait_for(lambda: service.notices()[before + 1 :] == ["exec is denied."])


@pytest.mark.needs("buttons")
@pytest.mark.usefixtures("people")
def test_where_two_must_agree_one_press_leaves_it_waiting_and_the_same_person_counts_once(
    there: Stage,
) -> None:
    service, hold = there.service, there.gateway.hold
    wish = ApprovalRequest(
        agent_id="main", tool="exec", command="sync", arguments={"command": "sync"}, reason="not listed"
    )
    with hold.store.write(SYSTEM) as tx:
        names = [
            _linked(tx, service.name, at, login)
            for login, at in (("cid", service.owner), ("dan", service.other))
        ]
        rule = {"tools": ["exec"], "approvers": names, "people": 2, "private": True}
    hold.config.patch({"teams": {"approvals": {"rules": [rule]}}})
    with hold.store.write(SYSTEM) as tx:
        id_ = requests.request(tx, wish, lasts_ms=3_600_000).id

    def status() -> str:
        with hold.store.read(SYSTEM) as tx:
            return requests.get(tx, id_).status.value

    wait_for(lambda: f"/approve {id_}" in "".join(service.shown()[-1:]))
    there.settled()
    assert "2 people must agree." in service.shown()[-1]
    before = len(service.notices())
    for presses in (1, 2):
        service.press("Approve")
        wait_for(lambda presses=presses: len(service.notices()) == before + presses)  # type: ignore[misc]
        assert service.notices()[-1] == "Noted; it waits for others."
        assert (status(), service.offered()) == ("pending", ["Approve", "Deny"])
    service.press("Approve", sender="8")
    wait_for(lambda: f"exec ({id_}) is approved by {', '.join(names)}." in service.shown()[-1])
    there.settled()
    assert (status(), service.offered()) == ("approved", [])
    wait_for(lambda: service.notices()[before + 2 :] == ["exec is approved."])


def _linked(tx: Tx, channel: str, at: str, login: str) -> str:
    """Somebody new whose chat this is."""
    user = users.add(tx, login, role=Role.MEMBER)
    code = contacts.make_code(tx, "link", user_id=user.id)
    contacts.link(tx, code, f"{channel}:{at}", f"{channel}:dm:{at}")
    return f"user:{login}"
