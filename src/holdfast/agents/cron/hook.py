"""How standing tasks and webhooks take part in turns: how a task's run ended, what a webhook is for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.agents.cron import archiving, firing, tasks, webhooks
from holdfast.agents.cron.tasks import Status
from holdfast.agents.loop.asks import Terms
from holdfast.agents.loop.hooks import TurnEnd, TurnHook
from holdfast.config import Config
from holdfast.context import Text, is_silent
from holdfast.log import Session, Turn, Tx


class StandingHook(TurnHook):
    name = "standing"

    def __init__(self, config: Callable[[], Config]) -> None:
        self._config = config

    def shown(self, tx: Tx, turn: Turn, session: Session, terms: Terms) -> Sequence[Text]:
        """What the operator wants done with a webhook's call; its own words stand apart, as data."""
        if turn.trigger != webhooks.TRIGGER:
            return ()
        return webhooks.instructions(turn.key, self._config().hooks)

    def committed(self, tx: Tx, end: TurnEnd) -> None:
        self._ended(tx, end, "silent" if is_silent(end.said) else "ok")

    def failed(self, tx: Tx, end: TurnEnd) -> None:
        self._ended(tx, end, "failed")

    def _ended(self, tx: Tx, end: TurnEnd, status: Status) -> None:
        if end.turn.trigger != firing.TRIGGER:
            return
        task = tasks.of_turn(tx, end.turn.id)
        if task is not None:
            failures = task.failures + 1 if status == "failed" else 0
            error = end.turn.error if status == "failed" else None
            tasks.save(
                tx, tasks.get(tx, task.id, lock=True), last_status=status, last_error=error, failures=failures
            )
            retention = self._config().cron.session_retention
            if task.session == "isolated" and retention is not None:
                archiving.plan(tx, end.session, int(retention))
