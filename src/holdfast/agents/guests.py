"""What those who are not the owner get of an agent besides talk: guests, groups, and whoever is in them.

By default nothing: no identity, memory or daily files, no skills, no folder. The owner opens more for a
channel (`channels.<name>.guests`) or for one chat of it (`channels.<name>.guestsIn.<id>`).
"""

from __future__ import annotations

from typing import Final

from holdfast.config import Config
from holdfast.config.channels import Guests
from holdfast.config.section import overlay
from holdfast.context import OPENABLE
from holdfast.log import FOR_OWNER
from holdfast.log.audience import surface_of

NOTHING: Final = Guests()
ALL: Final = Guests(identity=True, skills=True, folder=True)


def open_to(config: Config, audience: str) -> Guests:
    """What is open to those who hear a session; everything for the owner alone."""
    if audience == FOR_OWNER:
        return ALL
    surface = surface_of(audience)
    if surface is None:
        return NOTHING
    channel = config.channels.get(surface.channel)
    if channel is None:
        return NOTHING
    rules = channel.of_account(surface.account)
    own = rules.guests_in.get(surface.id)
    return rules.guests if own is None else overlay(rules.guests, own)


def opened_files(config: Config, audience: str) -> tuple[str, ...]:
    """The workspace files that the owner opened to them."""
    return tuple(sorted(OPENABLE)) if open_to(config, audience).identity else ()
