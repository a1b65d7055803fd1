"""Channels in the turn loop: the words of a session that people see are sent while they are written."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.agents.loop import TurnHook
from holdfast.agents.loop.asks import Terms
from holdfast.channels import marks
from holdfast.channels.connecting import Connected
from holdfast.channels.following import Attempt
from holdfast.channels.streaming import Streams
from holdfast.channels.surface import Surface
from holdfast.channels.transport import SendFailed
from holdfast.context import Occasion
from holdfast.errors import InvalidInput
from holdfast.keys import parse_key
from holdfast.log import Session, Turn, Tx


class ChannelHook(TurnHook):
    """A spawned session never streams: its words reach people by its parent, or by an explicit target."""

    name = "channels"

    def __init__(self, streams: Streams, connect: Callable[[Surface], Connected]) -> None:
        self._streams = streams
        self._connect = connect

    def begun(self, tx: Tx, turn: Turn, session: Session, terms: Terms) -> None:
        to = terms.deliver
        if to is None or turn.trigger != "user" or terms.occasion is not Occasion.MESSAGE:
            return
        if parse_key(session.key).is_subagent:
            return
        try:
            connected = self._connect(Surface.parse(to.target))
        except (InvalidInput, SendFailed):  # nobody carries it there now; the outbox will say so
            return
        if connected.streams:
            marks.save(tx, marks.get(tx, turn.id))
        if connected.streams or connected.channel.abilities.types:
            attempt = Attempt(turn.id, turn.attempt, session.key, to)
            tx.on_commit(lambda: self._streams.follow(attempt, connected))
