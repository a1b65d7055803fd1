"""Who hears a surface: the owner alone, one guest, or everyone in a group."""

from __future__ import annotations

from holdfast.channels import pairing
from holdfast.channels.surface import Surface
from holdfast.config.channels import ChannelConfig
from holdfast.log import FOR_OWNER, Audience, Tx, for_group, for_peer, surfaces


def heard_on(tx: Tx, surface: Surface, rules: ChannelConfig, *, owner: bool) -> Audience:
    """Who hears a surface; `owner`: whether a direct chat is the owner's. A thread is its channel's."""
    if surface.direct:
        return FOR_OWNER if owner else for_peer(surface.channel, surface.account, surface.peer)
    return surfaces.group_heard(tx, group_of(surface), declared=rules.is_private(surface.peer))


def heard_at(tx: Tx, surface: Surface, rules: ChannelConfig) -> Audience:
    """The same for a surface that somebody names: a direct chat is the owner's if its person is."""
    return heard_on(tx, surface, rules, owner=_is_owners(tx, surface, rules))


def group_of(surface: Surface) -> Audience:
    """Everyone in a group; its id is the same for all accounts of a channel."""
    return for_group(surface.channel, None, surface.peer)


def _is_owners(tx: Tx, surface: Surface, rules: ChannelConfig) -> bool:
    if surface.peer in rules.owners:
        return True
    known = pairing.find(tx, surface.channel, surface.peer)
    return known is not None and known.status is pairing.Status.APPROVED and known.owner
