"""The turn on BOOT.md, once for each start of the gateway."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from holdfast.agents.heartbeat import state, words
from holdfast.agents.heartbeat.deciding import FLOOD_MS, FLOOD_RUNS
from holdfast.agents.heartbeat.parts import Parts
from holdfast.agents.heartbeat.state import State
from holdfast.agents.loop.asks import ASK, Terms
from holdfast.config import Config
from holdfast.context import Occasion
from holdfast.ids import AgentId, uuid7
from holdfast.keys import MainKey
from holdfast.log import Tx, sessions, turns

TRIGGER: Final = "boot"
FILE: Final = "BOOT.md"
HOOK: Final = "boot-md"


def boot(tx: Tx, parts: Parts) -> list[str]:
    """Turns for the agents whose BOOT.md says something; their ids."""
    config = parts.config()
    if not _wanted(config):
        return []
    made = [_boot(tx, parts, agent.id) for agent in config.agent_list if parts.items(agent.id, FILE)]
    return [turn_id for turn_id in made if turn_id is not None]


def _boot(tx: Tx, parts: Parts, agent_id: str) -> str | None:
    known = state.locked(tx, agent_id)
    if _still_booting(tx, known) or _too_often(known, tx.now):
        return None
    session = sessions.ensure(tx, str(MainKey(AgentId(agent_id))), agent_id=agent_id)
    settings = parts.settings(agent_id).heartbeat
    terms = Terms(
        agent_id=agent_id,
        channel=session.channel,
        occasion=Occasion.BOOT,
        prompt=words.BOOT,
        timeout_seconds=settings.timeout_seconds,
    )
    turn = turns.accept(
        tx,
        session,
        None,
        key=f"{TRIGGER}:{agent_id}:{uuid7()}",
        trigger=TRIGGER,
        max_attempts=1,
        meta={ASK: terms.json()},
    ).turn
    state.save(tx, replace(known.with_run(turn.id, tx.now), boot_turn=turn.id, last_status="running"))
    return turn.id


def _wanted(config: Config) -> bool:
    entry = config.hooks.internal.entries.get(HOOK)
    return config.hooks.internal.enabled and (entry is None or entry.enabled)


def _still_booting(tx: Tx, known: State) -> bool:
    found = turns.get_many(tx, [known.boot_turn]) if known.boot_turn is not None else []
    return bool(found) and not turns.has_ended(tx, found[0])


def _too_often(known: State, now: int) -> bool:
    """A gateway that dies and starts again and again does not pay for it every time."""
    return len([at for at in known.ran_at if now - at < FLOOD_MS]) >= FLOOD_RUNS
