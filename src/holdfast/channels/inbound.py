"""A message that came in, who speaks in it, and what becomes of it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from holdfast.channels.surface import Surface
from holdfast.channels.transport import File
from holdfast.config.channels import ANYONE, ChannelConfig

State = Literal["answered", "kept", "pairing", "ignored"]
MAX_ID: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Inbound:
    """A message as its channel tells it. `message_id` is the channel's own and makes a repeat harmless.

    `mentioned` is whether the channel says that it names the agent; `reply_to` is the message it answers.
    `left_out` tells of files that the channel did not bring along, and why. A sender who is not `proven` to
    be who they say they are is never the owner.
    """

    surface: Surface
    message_id: str
    sender: str
    text: str
    sender_name: str | None = None
    mentioned: bool = False
    reply_to: str | None = None
    bot: bool = False
    guild_id: str | None = None
    team_id: str | None = None
    files: tuple[File, ...] = ()
    left_out: tuple[str, ...] = ()
    proven: bool = True

    @property
    def key(self) -> str:
        """One for each message of each account of each channel."""
        account = self.surface.account or ""
        return f"channel:{self.surface.channel}:{account}:{self.message_id}"

    @property
    def speaker(self) -> str:
        return self.sender_name or self.sender


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """What became of a message: other words, none (it was deleted), or a sign that somebody put to it."""

    surface: Surface
    message_id: str
    sender: str
    text: str | None = None
    sign: str | None = None
    sender_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressed:
    """A button that somebody pressed, as their service tells it: `value` is the button's."""

    surface: Surface
    sender: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """What is known of a message's sender and place. `addressed`: it speaks to the agent; `member`: the group
    is a team's, and its sender is in it."""

    owner: bool = False
    paired: bool = False
    denied: bool = False
    member: bool = False
    addressed: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    state: State
    reason: str


def judge(message: Inbound, rules: ChannelConfig, who: Sender) -> Verdict:
    """What becomes of a message, by the channel's policy."""
    if not (message.text.strip() or message.files or message.left_out):
        return Verdict("ignored", "it says nothing")
    if message.bot and message.sender not in (*rules.allow_from, *rules.owners):
        return Verdict("ignored", "it comes from a program that is not in allowFrom")
    return _direct(message, rules, who) if message.surface.direct else _group(message, rules, who)


def is_named(text: str, names: Iterable[str]) -> bool:
    """Whether a text names the agent: `@name`, or the name at its beginning as one calls somebody."""
    wanted = "|".join(re.escape(name) for name in names if name)
    if not wanted:
        return False
    called = rf"(?:^\s*(?:hey |hi |hello )?(?:{wanted})\s*[,:!?])|(?:(?<!\w)@(?:{wanted})(?!\w))"
    return re.search(called, text, re.IGNORECASE) is not None


def _direct(message: Inbound, rules: ChannelConfig, who: Sender) -> Verdict:
    if rules.dm_policy == "disabled":
        return Verdict("ignored", "direct messages are switched off")
    if who.owner or _listed(message.sender, rules.allow_from):
        return Verdict("answered", "the sender is known")
    if rules.dm_policy == "open":
        return Verdict("answered", "everyone may write")
    if who.denied:
        return Verdict("ignored", "the sender was turned away")
    if rules.dm_policy == "allowlist":
        return Verdict("ignored", "the sender is not in allowFrom")
    if who.paired:
        return Verdict("answered", "the sender is paired")
    return Verdict("pairing", "the sender is a stranger")


def _group(message: Inbound, rules: ChannelConfig, who: Sender) -> Verdict:
    peer = message.surface.peer
    if rules.group_policy == "disabled":
        return Verdict("ignored", "groups are switched off")
    known = who.owner or who.member or _listed(message.sender, rules.allow_from)
    if rules.group_policy == "allowlist" and not known and not _listed(peer, rules.groups):
        return Verdict("ignored", "the group is not in groups")
    if rules.group_allow_from and not who.owner and not _listed(message.sender, rules.group_allow_from):
        return Verdict("ignored", "the sender is not in groupAllowFrom")
    if _needs_mention(peer, rules) and not who.addressed:
        return Verdict("kept", "it does not speak to the agent")
    return Verdict("answered", "it speaks to the agent")


def _needs_mention(peer: str, rules: ChannelConfig) -> bool:
    own = rules.groups.get(peer) or rules.groups.get(ANYONE)
    said = None if own is None else own.require_mention
    return rules.require_mention if said is None else said


def _listed(id_: str, ids: Iterable[str]) -> bool:
    return id_ in (known := tuple(ids)) or ANYONE in known
