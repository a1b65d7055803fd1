"""Background commands live as long as their session, and end when it is stopped."""

from __future__ import annotations

from holdfast.agents.loop.hooks import Ended, TurnEnd, TurnHook
from holdfast.agents.tools import STOPS, Commands
from holdfast.keys import parse_key
from holdfast.log import Session, TurnStatus, Tx, sessions


class ProcessHook(TurnHook):
    """Ends what runs in this process for a session; a mark in the store tells other processes to."""

    name = "processes"

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def stopped(self, tx: Tx, session: Session) -> Ended:
        now = sessions.get(tx, session.id)
        meta = now.meta or {}
        sessions.update(tx, now, meta={**meta, STOPS: int(meta.get(STOPS, 0)) + 1})
        return self._end(tx, session)

    def reset(self, tx: Tx, left: Session) -> Ended:
        return self._end(tx, left)

    def failed(self, tx: Tx, end: TurnEnd) -> None:
        """A subagent that is stopped has no session to come back to."""
        if end.turn.status is TurnStatus.CANCELLED and parse_key(end.session.key).is_subagent:
            self.stopped(tx, end.session)

    def _end(self, tx: Tx, session: Session) -> Ended:
        count = self._commands.behind(session.id)
        tx.on_commit(lambda: self._commands.end_session(session.id))
        return Ended(count, "background command")
