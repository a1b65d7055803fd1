"""What comes in from a channel: who hears it there, who may write, and the turn that it asks for."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from holdfast.agents.loop import Accepted, Ask
from holdfast.agents.loop.asks import Address, Terms, address
from holdfast.agents.subagents import registry
from holdfast.agents.subagents.registry import Run
from holdfast.channels import history, pairing, progress, records
from holdfast.channels.connecting import Connections
from holdfast.channels.files import FileRoom
from holdfast.channels.inbound import Changed, Inbound, Sender, Verdict, is_named, judge
from holdfast.channels.pairing import Pairing
from holdfast.channels.records import Received
from holdfast.channels.surface import Surface
from holdfast.channels.team_groups import Place, group_of, member_at, place_of, refusal
from holdfast.channels.transport import Said, SendFailed
from holdfast.config import Config
from holdfast.config.channels import ChannelConfig
from holdfast.context import ContextRoom, SpawnParams, Trust
from holdfast.errors import HoldfastError, Unavailable
from holdfast.ids import AgentId
from holdfast.keys import MainKey
from holdfast.log import (
    FOR_OWNER,
    SYSTEM,
    Audience,
    NoteDraft,
    Store,
    Threads,
    Tx,
    for_peer,
    notes,
    outbox,
    sessions,
    surfaces,
)
from holdfast.log.outbox import Parcel
from holdfast.people import Team, teams
from holdfast.text import clip


def heard_on(tx: Tx, surface: Surface, rules: ChannelConfig, *, owner: bool) -> Audience:
    """Who hears a surface; `owner`: whether a direct chat is the owner's. A thread is its channel's."""
    if surface.direct:
        return FOR_OWNER if owner else for_peer(surface.channel, surface.account, surface.peer)
    return surfaces.group_heard(tx, group_of(surface), declared=rules.is_private(surface.peer))


def heard_at(tx: Tx, surface: Surface, rules: ChannelConfig) -> Audience:
    """The same for a surface that somebody names: a direct chat is the owner's if its person is."""
    return heard_on(tx, surface, rules, owner=_is_owners(tx, surface, rules))


def _is_owners(tx: Tx, surface: Surface, rules: ChannelConfig) -> bool:
    if surface.peer in rules.owners:
        return True
    known = pairing.find(tx, surface.channel, surface.peer)
    return known is not None and known.status is pairing.Status.APPROVED and known.owner


log = logging.getLogger(__name__)

HELLO: Final = (
    "Hello. I do not know you yet, so I cannot answer. Give this code to my owner: {code} "
    "(it holds for {minutes} minutes)."
)


EXPOSED: Final = (
    "Somebody else ({who}) wrote on {surface}, which was declared private. From now on it is treated as a "
    "group: nothing private is shown or remembered there, and what was said before stays the owner's. If "
    "only the owner reads it after all, they can say so again with: holdfast channels private {channel} {id}"
)


TEAM_EXPOSED: Final = (
    "Somebody ({who}) wrote on {surface}, which is team {team}'s, and is not known as one of the team. From "
    "now on it is treated as a group like others: nothing of the team's is shown or remembered there, and "
    "what was said before stays the team's. Once they have linked their chat, or left, the owner can say it "
    "again with: holdfast teams channel {team} {surface}"
)


class Children(Protocol):
    """What is asked of the subagents' room: a further task for a child to whom somebody spoke."""

    def addressed(self, tx: Tx, run: Run, text: str, who: Terms, key: str) -> Run: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivingParts:
    store: Store
    threads: Threads
    config: Callable[[], Config]
    connections: Connections
    accept: Callable[[Ask], Awaitable[Accepted]]
    cancel: Callable[[str], Awaitable[object]]
    files: FileRoom
    children: Callable[[], Children]
    context: Callable[[], ContextRoom]


@dataclass(frozen=True, slots=True)
class _Admitted:
    """A message that is answered."""

    message: Inbound
    rules: ChannelConfig
    verdict: Verdict
    owner: bool
    place: Place

    @property
    def heard(self) -> Audience:
        return self.place.heard


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is asked of the turn loop, and the transcript that the session begins with, if it does."""

    ask: Ask
    fork: SpawnParams | None = None


class Receiver:
    def __init__(self, parts: ReceivingParts) -> None:
        self._parts = parts

    async def receive(self, message: Inbound, *, may_own: bool = True) -> Received:
        """See to a message once, however often it is sent; `may_own`: who brings it may name the owner."""
        parts = self._parts
        seen = await parts.threads(parts.store.run, SYSTEM, lambda tx: self._seen(tx, message, may_own))
        if isinstance(seen, Received):
            return seen
        opened = await self._in_thread(seen)
        above = await self._said_there(opened)
        asked = await parts.threads(parts.store.run, SYSTEM, lambda tx: self._asked(tx, opened, above))
        run_id = await self._accepted(asked)
        verdict = opened.verdict

        def note(tx: Tx) -> None:
            records.record_arrival(tx, opened.message, verdict, run_id)

        await parts.threads(parts.store.run, SYSTEM, note)
        return Received(verdict.state, verdict.reason, run_id)

    async def changed(self, change: Changed) -> bool:
        """Follow what somebody did to a message; False where the log has no such message of theirs."""
        parts = self._parts
        outcome = await parts.threads(parts.store.run, SYSTEM, lambda tx: self._changed(tx, change))
        if outcome.stops is not None:
            await parts.cancel(outcome.stops)
        return outcome.found

    def _changed(self, tx: Tx, change: Changed) -> history.Outcome:
        surface = change.surface
        rules = self._parts.connections.settings(surface.channel, surface.account)
        said = Inbound(
            surface=surface,
            message_id=change.message_id,
            sender=change.sender,
            sender_name=change.sender_name,
            text=change.text or "",
        )
        person = pairing.find(tx, surface.channel, change.sender)
        owner = _is_owner(said, rules, person)
        place = place_of(tx, said, heard_on(tx, surface, rules, owner=owner), self._parts.config())
        key = records.bound_session(tx, surface)
        if key is None:
            key = address(self._ask(said, owner, place), self._parts.config()).session_key
        return history.follow_change(tx, change, key, None if change.text is None else _said(said))

    async def _accepted(self, asked: _Asked | Run) -> str | None:
        """The run that answers."""
        if isinstance(asked, Run):
            return asked.run_id
        await self._fork(asked)
        return (await self._parts.accept(asked.ask)).run_id

    async def _said_there(self, admitted: _Admitted) -> list[Said]:
        """What the service has of a thread whose session is about to begin; nothing where it cannot tell."""
        surface, limit = admitted.message.surface, admitted.rules.thread.initial_history_limit
        if surface.thread is None or not limit:
            return []
        try:
            channel = self._parts.connections.of(surface).channel
            if not channel.abilities.reads or await self._parts.threads(self._has_begun, admitted):
                return []
            return list(await channel.history(surface, limit))
        except SendFailed as error:
            log.warning("%s begins without what was said there: %s", surface.address, error.message)
            return []

    def _has_begun(self, admitted: _Admitted) -> bool:
        ask = self._ask(admitted.message, admitted.owner, admitted.place)
        key = address(ask, self._parts.config()).session_key
        with self._parts.store.read(SYSTEM) as tx:
            session = sessions.active(tx, key)
            return records.bound_session(tx, admitted.message.surface) is not None or (
                session is not None and session.turn_count > 0
            )

    def _seen(self, tx: Tx, message: Inbound, may_own: bool) -> Received | _Admitted:
        """Judge a message; what is not answered is seen to here."""
        surface = message.surface
        rules = self._parts.connections.settings(surface.channel, surface.account)
        if not rules.enabled:
            raise Unavailable(f"channel {surface.channel} is switched off", code="channel_off")
        known = records.find_arrival(tx, message)
        if known is not None:
            return known
        records.check_pace(tx, surface.channel, rules.inbound_per_minute)
        person = pairing.find(tx, surface.channel, message.sender)
        owner = may_own and _is_owner(message, rules, person)
        user = member_at(tx, message)
        heard = self._heard(tx, message, rules, owner=owner, member=user is not None)
        place = place_of(tx, message, heard, self._parts.config())
        to = address(self._ask(message, owner, place), self._parts.config())
        who = Sender(
            owner=owner,
            paired=person is not None and person.status is pairing.Status.APPROVED,
            denied=person is not None and person.status is pairing.Status.DENIED,
            member=user is not None and place.team is not None,
            addressed=self._is_addressed(tx, message, to, owner),
        )
        verdict = judge(message, rules, who)
        refused = refusal(tx, place, user) if verdict.state == "answered" else None
        if refused is not None:
            verdict = Verdict("ignored", refused.why)
            if refused.told:
                _tell(tx, message, refused.why)
        if verdict.state == "answered":
            return _Admitted(message, rules, verdict, owner, place)
        if verdict.state == "kept":
            history.keep(tx, message, to.session_key, to.agent_id, heard)
        elif verdict.state == "pairing":
            _offer_code(tx, message, rules)
        records.record_arrival(tx, message, verdict, None)
        return Received(verdict.state, verdict.reason)

    def _heard(
        self, tx: Tx, message: Inbound, rules: ChannelConfig, *, owner: bool, member: bool
    ) -> Audience:
        """Who hears the surface. One that was private, or a team's, is so no longer once somebody else writes
        there."""
        surface = message.surface
        known = owner or member or (message.bot and message.sender in rules.allow_from)
        if not surface.direct and not known:
            fresh = surfaces.expose(tx, group_of(surface), message.sender)
            team = teams.of_space(tx, surfaces.space_given(tx, group_of(surface))) if fresh else None
            if fresh and (team is not None or rules.is_private(surface.peer)):
                self._tell_exposed(tx, message, team)
        return heard_on(tx, surface, rules, owner=owner)

    def _tell_exposed(self, tx: Tx, message: Inbound, team: Team | None) -> None:
        """Ask the owner about a surface that others turned out to read."""
        surface = message.surface
        key = str(MainKey(AgentId(self._parts.config().default_agent_id)))
        text = (EXPOSED if team is None else TEAM_EXPOSED).format(
            surface=replace(surface, thread=None, account=None).address,
            who=clip(message.speaker, 80),
            id=surface.peer,
            channel=surface.channel,
            team="" if team is None else team.id,
        )
        draft = NoteDraft(
            key=f"exposed:{group_of(surface)}:{tx.now}",
            session_key=key,
            audience=FOR_OWNER,
            kind="surface-exposed",
            text=text,
            trust=Trust.OPERATOR.label,
            source=f"channel/{surface.channel}",
        )
        notes.post(tx, draft)

    def _is_addressed(self, tx: Tx, message: Inbound, to: Address, owner: bool) -> bool:
        """By name, as an answer to the agent, as the owner's command, or in a thread that the agent is in."""
        surface = message.surface
        if message.mentioned or (owner and message.text.lstrip().startswith("/")):
            return True
        if message.reply_to is not None and progress.is_ours(tx, surface.channel, message.reply_to):
            return True
        if surface.thread is not None and (
            records.bound_session(tx, surface) is not None or sessions.active(tx, to.session_key) is not None
        ):
            return True
        agent = self._parts.config().agent(to.agent_id)
        return is_named(message.text, (agent.id, agent.name or ""))

    async def _in_thread(self, admitted: _Admitted) -> _Admitted:
        """Where each message opens a thread, it is that thread's; if none opens, it stays where it is."""
        message, rules = admitted.message, admitted.rules
        surface = message.surface
        if not rules.auto_thread or surface.direct or surface.thread is not None:
            return admitted
        try:
            channel = self._parts.connections.of(surface).channel
            if not channel.abilities.threads:
                return admitted
            name = clip(" ".join(message.text.split()), 80)
            thread = await channel.open_thread(surface, name, f"thread:{message.key}", message.message_id)
        except SendFailed as error:
            log.warning("no thread was opened on %s: %s", surface.address, error.message)
            return admitted
        return replace(admitted, message=replace(message, surface=surface.in_thread(thread)))

    def _asked(self, tx: Tx, admitted: _Admitted, above: Sequence[Said] = ()) -> _Asked | Run:
        """The message as an ask, with what was said before it; or as a further task of a child."""
        message, rules = admitted.message, admitted.rules
        ask = self._ask(message, admitted.owner, admitted.place)
        bound = records.bound_session(tx, message.surface)
        run = None if bound is None else registry.newest_of_child(tx, bound)
        if bound is not None and run is not None:
            return self._for_child(tx, replace(ask, session_key=bound), run)
        to = address(ask, self._parts.config())
        if not message.surface.direct:
            history.give_unanswered(tx, message, to.session_key, rules.history_limit)
        fork = self._give_parent(tx, admitted, to)
        history.give_thread(tx, message, to.session_key, admitted.heard, above)
        if not (message.files or message.left_out):
            return _Asked(ask, fork)
        brought = self._parts.files.bring(message, _said(message), to.agent_id, owner=admitted.owner)

        def keep(tx: Tx, entry_id: str) -> None:
            self._parts.files.keep(tx, brought.kept, entry_id, admitted.heard)

        return _Asked(replace(ask, text=brought.text, images=brought.images, with_entry=keep), fork)

    async def _fork(self, asked: _Asked) -> None:
        """Let a thread's session begin with the transcript of where it was opened."""
        if asked.fork is None:
            return
        try:
            await self._parts.context().prepare_subagent_spawn(asked.fork)
        except HoldfastError as error:
            log.warning("%s begins without a transcript: %s", asked.fork.child_session_key, error.message)

    def _for_child(self, tx: Tx, ask: Ask, run: Run) -> _Asked | Run:
        """A child whose result its parent relays is given a further task; one under way, or one that speaks
        for itself, is spoken to, and what it answers is posted once, never streamed."""
        assert ask.key is not None
        if not run.expects or registry.live_of_child(tx, run.child_key) is not None:
            return _Asked(ask)
        who = Terms(
            agent_id=run.requester_agent,
            sender=ask.sender,
            owner=ask.owner,
            channel=None if ask.origin is None else ask.origin.channel,
            deliver=ask.deliver,
        )
        return self._parts.children().addressed(tx, run, ask.text, who, f"further:{ask.key}")

    def _give_parent(self, tx: Tx, admitted: _Admitted, to: Address) -> SpawnParams | None:
        """What was said where a thread was opened, for the first turn of its session: quoted, or whole."""
        message, rules = admitted.message, admitted.rules.thread
        parent = message.surface.parent
        if parent is None or message.surface.direct:  # a thread with one person is a talk of its own
            return None
        session = sessions.ensure(
            tx, to.session_key, audience=admitted.heard, agent_id=to.agent_id, channel=to.channel
        )
        if session.turn_count:
            return None
        said_above = self._ask(replace(message, surface=parent), admitted.owner, admitted.place)
        above = replace(said_above, agent_id=to.agent_id)
        key = address(above, self._parts.config()).session_key
        source = sessions.active(tx, key) if rules.inherit_parent else None
        if source is not None and source.audience == session.audience:
            return SpawnParams(
                parent_session_id=source.id,
                parent_session_key=source.key,
                child_session_id=session.id,
                child_session_key=session.key,
                context_mode="fork",
            )
        history.give_parent(tx, message, session.key, session.id, key, rules.initial_history_limit)
        return None

    def _ask(self, message: Inbound, owner: bool, place: Place) -> Ask:
        surface = message.surface
        source: dict[str, Any] = {"surface": surface.address, "messageId": message.message_id}
        return Ask(
            text=_said(message) or "(nothing)",
            origin=surface.origin(guild_id=message.guild_id, team_id=message.team_id),
            thread_id=surface.thread,
            source=source,
            sender=f"{surface.channel}:{message.sender}",
            sender_label=clip(message.speaker, 120),
            owner=owner,
            agent_id=place.agent_id,
            heard=place.heard,
            deliver=surface.deliver(place.heard, owner=True if owner else None),
            key=message.key,
            proven=message.proven,
        )


def _said(message: Inbound) -> str:
    """The words; in a group with who says them, but for a command."""
    text = message.text.strip()
    if message.surface.direct or text.startswith("/"):
        return text
    name = " ".join(message.speaker.split()).replace("[", "(").replace("]", ")")
    return f"[{clip(name, 80)}] {text}"


def _is_owner(message: Inbound, rules: ChannelConfig, person: Pairing | None) -> bool:
    """Only who is named as the owner, in the config or when they were let in; never a program."""
    if message.bot or not message.proven:
        return False
    paired = person is not None and person.status is pairing.Status.APPROVED and person.owner
    return paired or message.sender in rules.owners


def _tell(tx: Tx, message: Inbound, text: str) -> None:
    to = message.surface.deliver()
    outbox.post(tx, Parcel(key=f"told:{message.key}", kind=to.kind, target=to.target, payload={"text": text}))


def _offer_code(tx: Tx, message: Inbound, rules: ChannelConfig) -> None:
    made = pairing.ask(tx, message.surface, message.sender, message.sender_name, rules.pairing_minutes)
    if made is None:
        return
    text = HELLO.format(code=made.code, minutes=rules.pairing_minutes)
    to = message.surface.deliver()
    outbox.post(tx, Parcel(key=f"pairing:{made.id}", kind=to.kind, target=to.target, payload={"text": text}))
