"""Background commands live as long as their session: who begins a new one has the old one's ended."""

from __future__ import annotations

from holdfast.agents.loop.hooks import TurnHook
from holdfast.agents.tools import Commands
from holdfast.log import Session, Tx


class ProcessHook(TurnHook):
    """Ends what runs in this process for a session that was left by hand."""

    name = "processes"

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def reset(self, tx: Tx, left: Session) -> str | None:
        count = self._commands.running_of(left.id)
        if not count:
            return None
        tx.on_commit(lambda: self._commands.end_session(left.id))
        what = "A background command" if count == 1 else f"{count} background commands"
        return f"{what} of the former session {'was' if count == 1 else 'were'} ended."
