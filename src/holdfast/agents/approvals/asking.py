"""Asking people where they are, reminding them, and taking their answer from there.

What goes out is a message with `choices` and what it is `about`: a channel that has buttons shows them and
hands the one that was pressed to `answer`; on any other people write `/approve <id>` or `/deny <id>`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from holdfast.agents.approvals import requests, workflow
from holdfast.agents.approvals.requests import Approval, ApprovalStatus, asked_key
from holdfast.agents.approvals.workflow import THE_OWNER, Decider, Decision
from holdfast.config import Config
from holdfast.errors import Forbidden, InvalidInput, NotFound
from holdfast.hidden_characters import make_visible
from holdfast.log import SYSTEM, Store, Threads, Tx, agenda, outbox
from holdfast.people import contacts, users

CHOICES: Final = ({"id": "approve", "label": "Approve"}, {"id": "deny", "label": "Deny"})
MOST_COMMAND: Final = 1_500
_MINUTE: Final = 60_000


def asking_kind(store: Store, threads: Threads, config: Callable[[], Config]) -> agenda.Kind:
    """Asks those who may decide, and again after a while for as long as nobody did."""

    def work(payload: dict[str, Any]) -> None:
        store.run(SYSTEM, lambda tx: ask(tx, config(), str(payload["id"]), int(payload["round"])))

    async def handle(job: agenda.Job) -> None:
        await threads(work, dict(job.item.payload))

    return agenda.Kind(handle, relative=True)


def answer(tx: Tx, config: Config, handle: str, id_: str, choice: str) -> Approval:
    """What somebody chose in a chat: `handle` is who they are there, as their service says it is."""
    if choice not in ("approve", "deny"):
        raise InvalidInput(f"not a choice: {choice[:40]!r}", code="bad_choice", hint="Use approve or deny.")
    decision: Decision = "approve" if choice == "approve" else "deny"
    who = decider(tx, handle, owner=False)
    return workflow.decide(tx, config.teams, who, id_, decision)


def decider(tx: Tx, sender: str | None, *, owner: bool) -> Decider:
    """Who speaks: the person whose chat or login it is, else the owner where they are known to be."""
    user = contacts.at(tx, sender)
    if user is None and sender is not None and sender.startswith("user:"):
        try:
            user = users.get(tx, sender.removeprefix("user:"))
        except NotFound:
            user = None
    if user is not None and user.active:
        return workflow.person(user)
    if owner:
        return Decider(THE_OWNER.person, sender or THE_OWNER.name, owner=True)
    raise Forbidden(
        "deciding is for the owner alone, and for people who are known here",
        code="owner_only",
        hint="Link this chat: /link <code>.",
    )


def ask(tx: Tx, config: Config, id_: str, round_: int) -> None:
    """Ask those who may answer and have not, in their chats; and see to the next time."""
    approval = requests.seen(requests.get(tx, id_), tx.now)
    if approval.status is not ApprovalStatus.PENDING:
        return
    found = workflow.case(tx, config.teams, approval)
    said = {one.person for one in workflow.votes_of(tx, [id_])[id_]}
    asked = {one.id for one in workflow.deciders(tx, found)} - said
    for contact in contacts.of(tx):
        if contact.user_id in asked:
            _post(tx, approval, round_, contact.address, found.needed)
    again = config.teams.approvals.remind_minutes
    due = None if again is None else tx.now + again * _MINUTE
    if due is not None and due < approval.expires_at:
        agenda.enqueue(
            tx, requests.ASKING, {"id": id_, "round": round_ + 1}, lane=f"approval:{id_}", due_at=due
        )


def _post(tx: Tx, approval: Approval, round_: int, address: str, needed: int) -> None:
    channel = address.partition(":")[0].partition("/")[0]
    payload = {
        "text": question(approval, round_, needed),
        "choices": list(CHOICES),
        "about": {"kind": "approval", "id": approval.id},
    }
    key = asked_key(approval.id, round_, address)
    outbox.post(tx, outbox.Parcel(key=key, kind=channel, target=address, payload=payload))


def question(approval: Approval, round_: int, needed: int) -> str:
    """What a person reads. Whatever hides in the command is made visible."""
    command = make_visible(approval.command)
    shown = command if len(command) <= MOST_COMMAND else f"{command[:MOST_COMMAND]}… (see the page for all)"
    head = "Still waiting" if round_ else "Waits for approval"
    several = f"\n{needed} people must agree." if needed > 1 else ""
    told = f"{head}: {approval.tool} of agent {approval.agent_id}\n{shown}\n{make_visible(approval.reason)}"
    return f"{told}{several}\n/approve {approval.id}\n/deny {approval.id}"
