"""How a turn began: its later calls repeat that to the byte, so that within a turn a context only grows.

Workspace files, the date and the pressure are read once per turn; what the agent writes into its own files
while it works is in the system prompt of its next turn, and in its tool results at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.context import blobs, manifest
from holdfast.context.layout import Stable
from holdfast.context.manifest import Section
from holdfast.context.messages import CarrierMessage, Trust, decode
from holdfast.context.request import Text
from holdfast.log import Tx


@dataclass(frozen=True, slots=True)
class Opening:
    stable: Stable
    carrier: CarrierMessage
    sections: tuple[Section, ...]


def opening_of(tx: Tx, turn_id: str) -> Opening | None:
    """The opening of a turn whose first call was stored; None if it was not."""
    stored = manifest.first_of_turn(tx, turn_id)
    if stored is None or stored.carrier is None:
        return None
    contents = blobs.get_many(tx, [*stored.system, stored.carrier])
    named = [s for s in stored.manifest.sections if s.place == "system"]
    system = tuple(
        Text(section.name, contents[hash_], Trust.parse(section.trust), section.source, section.audience)
        for section, hash_ in zip(named, stored.system, strict=True)
    )
    carrier = decode(contents[stored.carrier])
    if not isinstance(carrier, CarrierMessage):
        return None
    moving = tuple(s for s in stored.manifest.sections if s.place == "carrier")
    return Opening(Stable(system, (), {}, stored.manifest.warnings), carrier, moving)
