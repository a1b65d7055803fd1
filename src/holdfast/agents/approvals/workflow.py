"""Who decides on an approval, how people are asked and reminded, and how their answer is taken.

What the config says at the moment of the answer counts, so that who is taken out of it decides no more.
Nobody but the owner says yes to what they asked for themselves; one person counts once, however they come.

What goes out is a message with `choices` and what it is `about`: a channel that has buttons shows them and
hands the one that was pressed to `answer`; on any other people write `/approve <id>` or `/deny <id>`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import sqlalchemy as sa

from holdfast.agents.approvals import requests
from holdfast.agents.approvals.gate import allow_always
from holdfast.agents.approvals.requests import SIGNAL, Approval, ApprovalStatus, asked_key
from holdfast.agents.approvals.tables import approval_votes as votes
from holdfast.agents.approvals.tables import approvals as table
from holdfast.config import Config
from holdfast.config.runtime import ApprovalRule, TeamsConfig
from holdfast.errors import Conflict, Forbidden, InvalidInput, NotFound
from holdfast.log import (
    FOR_OWNER,
    SYSTEM,
    Store,
    Threads,
    Tx,
    agenda,
    audit,
    changes,
    outbox,
    sessions,
    turns,
)
from holdfast.people import Role, Team, User, contacts, teams, users
from holdfast.text import make_visible

Decision = Literal["approve", "deny", "allow"]
ANY: Final = "*"
OWNER: Final = "owner"


@dataclass(frozen=True, slots=True)
class Decider:
    """Who answers; `person` tells people apart, whichever token or chat they come by."""

    person: str
    name: str
    owner: bool = False
    user: User | None = None


THE_OWNER: Final = Decider(OWNER, OWNER, owner=True)


@dataclass(frozen=True, slots=True)
class Vote:
    approval_id: str
    person: str
    name: str
    behalf_of: str | None
    at: int


@dataclass(frozen=True, slots=True)
class Case:
    """A call with what the rules make of it: who asked, in whose session, how many must say yes."""

    approval: Approval
    rules: tuple[ApprovalRule, ...]
    asker: str | None
    private: bool
    needed: int


def person(user: User) -> Decider:
    return Decider(user.id, f"user:{user.login}", owner=user.role is Role.OWNER, user=user)


def decide(
    tx: Tx,
    settings: TeamsConfig,
    who: Decider,
    id_: str,
    decision: Decision,
    *,
    pattern: str | None = None,
) -> Approval:
    """Answer. One no is enough; with a rule of several people a yes counts until there are as many."""
    with tx.reading_as(SYSTEM):
        found = case(tx, settings, requests.get(tx, id_))
        standing = _standing(_House.now(tx), found, who)
        if standing is None:
            raise Forbidden(
                f"{who.name} may not decide on this call",
                code="approval_forbidden",
                hint="The owner may, and whom teams.approvals.rules names for it.",
            )
        if decision == "deny":
            return requests.deny(tx, id_, by=who.name)
        if decision == "allow":
            _require_alone(who, found)
            return allow_always(tx, id_, pattern=pattern, by=who.name)
        return _yes(tx, found, who, standing.behalf_of)


def case(tx: Tx, settings: TeamsConfig, approval: Approval) -> Case:
    """What the rules say of a call. Reads as the runtime itself."""
    return cases(tx, settings, [approval])[0]


def cases(tx: Tx, settings: TeamsConfig, approvals: Sequence[Approval]) -> list[Case]:
    """As `case`, with what they are about read once for all of them."""
    everyone = teams.listing(tx)
    heard = sessions.audiences(tx, {one.session_key for one in approvals if one.session_key is not None})
    askers = _askers(tx, {one.turn_id for one in approvals if one.turn_id is not None})

    def of(approval: Approval) -> Case:
        audience = heard.get(approval.session_key or "", FOR_OWNER)
        theirs = _teams_of(audience, everyone)
        rules = tuple(one for one in settings.approvals.rules if _fits(one, approval, theirs))
        needed = max((one.people for one in rules), default=1)
        asker = askers.get(approval.turn_id or "")
        return Case(approval, rules, asker, audience == FOR_OWNER, needed)

    return list(map(of, approvals))


def may_decide(tx: Tx, settings: TeamsConfig, who: Decider, approval: Approval) -> bool:
    return bool(decidable(tx, settings, who, [approval]))


def decidable(tx: Tx, settings: TeamsConfig, who: Decider, approvals: Sequence[Approval]) -> list[Approval]:
    """Of the calls those that somebody may decide on."""
    with tx.reading_as(SYSTEM):
        house = _House.now(tx)
        found = cases(tx, settings, approvals)
        return [one.approval for one in found if _standing(house, one, who) is not None]


def deciders(tx: Tx, found: Case) -> list[User]:
    """The people who may answer now, for whoever asks them."""
    house = _House.now(tx)
    return [one for one in users.listing(tx) if _standing(house, found, person(one)) is not None]


def the_owner(name: str) -> Decider:
    """The owner, by whichever token of the home's."""
    return Decider(OWNER, name, owner=True)


def needed(tx: Tx, settings: TeamsConfig, approvals: Sequence[Approval]) -> list[int]:
    """How many must say yes to each call."""
    if not settings.approvals.rules:
        return [1] * len(approvals)
    with tx.reading_as(SYSTEM):
        return [one.needed for one in cases(tx, settings, approvals)]


def logins(tx: Tx, settings: TeamsConfig, approvals: Sequence[Approval]) -> list[list[str]]:
    """For each call, of those whom the rules let decide now, besides the owner's tokens: whom an event of it
    is for."""
    if not settings.approvals.rules:
        return [[] for _ in approvals]
    with tx.reading_as(SYSTEM):
        house, people = _House.now(tx), users.listing(tx)
        return [
            [one.login for one in people if _standing(house, found, person(one)) is not None]
            for found in cases(tx, settings, approvals)
        ]


def votes_of(tx: Tx, ids: Iterable[str]) -> dict[str, list[Vote]]:
    wanted = list(ids)
    found: dict[str, list[Vote]] = {id_: [] for id_ in wanted}
    query = sa.select(votes).where(votes.c.approval_id.in_(wanted)).order_by(votes.c.at, votes.c.person)
    for row in tx.conn.execute(query).mappings():
        found[row["approval_id"]].append(Vote(**row))
    return found


@dataclass(frozen=True, slots=True)
class _House:
    """The teams, and those who are away by the id of who stands in for them: read once for all people."""

    teams: list[Team]
    away: dict[str, list[User]]

    @classmethod
    def now(cls, tx: Tx) -> _House:
        away: dict[str, list[User]] = {}
        for one in users.away(tx):
            away.setdefault(str(one.delegate_id), []).append(one)
        return cls(teams.listing(tx), away)


@dataclass(frozen=True, slots=True)
class _Standing:
    behalf_of: str | None = None


def _yes(tx: Tx, found: Case, who: Decider, behalf_of: str | None) -> Approval:
    approval = found.approval
    if found.needed == 1 or approval.status is not ApprovalStatus.PENDING:
        return requests.approve(tx, approval.id, by=who.name, behalf_of=behalf_of)
    # One after the other: of two who agree at once, one must see that they are two.
    tx.conn.execute(sa.select(table.c.id).where(table.c.id == approval.id).with_for_update())
    said = votes_of(tx, [approval.id])[approval.id]
    if who.person not in {one.person for one in said}:
        row = {"approval_id": approval.id, "person": who.person, "name": who.name}
        tx.conn.execute(sa.insert(votes), row | {"behalf_of": behalf_of, "at": tx.now})
        told = {"agent": approval.agent_id, "tool": approval.tool}
        audit.note(tx, "approval.vote", approval.id, by=who.name, behalf_of=behalf_of, **told)
        changes.emit(tx, "approval.voted", approval.id)
        tx.wake(SIGNAL)
        said = votes_of(tx, [approval.id])[approval.id]
    if len(said) < found.needed:
        return requests.get(tx, approval.id)
    return requests.approve(tx, approval.id, by=", ".join(one.name for one in said), behalf_of=behalf_of)


def _standing(house: _House, found: Case, who: Decider) -> _Standing | None:
    """Why somebody may answer: by themselves, or for one who is away; None if they may not."""
    user = who.user
    if who.owner and (user is None or user.active):
        return _Standing()
    if user is None or not user.active or found.asker == who.name:
        return None
    if _is_named(found, user, house.teams):
        return _Standing()
    for other in house.away.get(user.id, ()):
        theirs = other.role is Role.OWNER and not found.private
        if other.active and (theirs or _is_named(found, other, house.teams)):
            return _Standing(f"user:{other.login}")
    return None


def _is_named(found: Case, user: User, everyone: list[Team]) -> bool:
    own = {f"user:{user.login}", f"role:{user.role.value}"}
    own |= {f"team:{team.id}" for team in everyone if user.id in team.members}
    rules = [one for one in found.rules if one.private or not found.private]
    return any(own.intersection(one.approvers) for one in rules)


def _require_alone(who: Decider, found: Case) -> None:
    """What runs unasked from now on is the owner's to say, and not where several must agree each time."""
    if not who.owner:
        raise Forbidden("only the owner lets calls run for good", code="owner_only", hint="Approve it once.")
    if found.needed > 1:
        raise Conflict(
            f"{found.needed} people must agree to each such call", code="needs_more", hint="Approve it once."
        )


def _fits(rule: ApprovalRule, approval: Approval, theirs: frozenset[str]) -> bool:
    agent = ANY in rule.agents or approval.agent_id in rule.agents
    tool = ANY in rule.tools or approval.tool in rule.tools
    return agent and tool and (not rule.teams or bool(theirs.intersection(rule.teams)))


def _teams_of(audience: str, everyone: list[Team]) -> frozenset[str]:
    kind, _, name = audience.partition(":")
    if kind == "space":
        return frozenset(team.id for team in everyone if team.space_id == name)
    return frozenset(team.id for team in everyone if kind == "member" and name in team.members)


def _askers(tx: Tx, turn_ids: Collection[str]) -> dict[str, str | None]:
    """Who asked for each turn, under the name that they decide by."""
    found = turns.get_many(tx, sorted(turn_ids)) if turn_ids else []
    senders = {one.id: ((one.meta or {}).get("ask") or {}).get("sender") for one in found}
    named: dict[str | None, str | None] = {}
    for sender in set(senders.values()):
        linked = contacts.at(tx, sender)
        named[sender] = sender if linked is None else f"user:{linked.login}"
    return {id_: named[sender] for id_, sender in senders.items()}


CHOICES: Final = ({"id": "approve", "label": "Approve"}, {"id": "deny", "label": "Deny"})
MOST_COMMAND: Final = 1_500
_MINUTE: Final = 60_000


def asking_kind(store: Store, threads: Threads, config: Callable[[], Config]) -> agenda.Kind:
    """Asks those who may decide, and again after a while for as long as nobody did."""

    def work(payload: dict[str, Any]) -> None:
        store.run(SYSTEM, lambda tx: ask_people(tx, config(), str(payload["id"]), int(payload["round"])))

    async def handle(job: agenda.Job) -> None:
        await threads(work, dict(job.item.payload))

    return agenda.Kind(handle, relative=True)


def answer(tx: Tx, config: Config, handle: str, id_: str, choice: str) -> Approval:
    """What somebody chose in a chat: `handle` is who they are there, as their service says it is."""
    if choice not in ("approve", "deny"):
        raise InvalidInput(f"not a choice: {choice[:40]!r}", code="bad_choice", hint="Use approve or deny.")
    decision: Decision = "approve" if choice == "approve" else "deny"
    who = decider(tx, handle, owner=False)
    return decide(tx, config.teams, who, id_, decision)


def decider(tx: Tx, sender: str | None, *, owner: bool) -> Decider:
    """Who speaks: the person whose chat or login it is, else the owner where they are known to be."""
    user = contacts.at(tx, sender)
    if user is None and sender is not None and sender.startswith("user:"):
        try:
            user = users.get(tx, sender.removeprefix("user:"))
        except NotFound:
            user = None
    if user is not None and user.active:
        return person(user)
    if owner:
        return Decider(THE_OWNER.person, sender or THE_OWNER.name, owner=True)
    raise Forbidden(
        "deciding is for the owner alone, and for people who are known here",
        code="owner_only",
        hint="Link this chat: /link <code>.",
    )


def ask_people(tx: Tx, config: Config, id_: str, round_: int) -> None:
    """Ask those who may answer and have not, in their chats; and see to the next time."""
    approval = requests.seen(requests.get(tx, id_), tx.now)
    if approval.status is not ApprovalStatus.PENDING:
        return
    found = case(tx, config.teams, approval)
    said = {one.person for one in votes_of(tx, [id_])[id_]}
    asked = {one.id for one in deciders(tx, found)} - said
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
