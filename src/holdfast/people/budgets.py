"""What a team may use in a day and in a month, and what it has used: a turn beyond it is not begun.

What is counted is what is said in the team's sessions and in its members' own with its agents. Days and
months are those of UTC, as on the page of usage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from holdfast.clock import DAY_MS, iso
from holdfast.errors import Busy
from holdfast.log import Tx, for_member, for_space
from holdfast.log.tables import turns

if TYPE_CHECKING:
    from holdfast.people.teams import Team

MOST: Final = 10**15


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """None is no limit."""

    tokens_per_day: int | None = None
    tokens_per_month: int | None = None
    cost_per_day: float | None = None
    cost_per_month: float | None = None

    @classmethod
    def read(cls, kept: Mapping[str, Any] | None) -> Budget:
        return cls(**{one.name: (kept or {}).get(one.name) for one in fields(cls)})

    def kept(self) -> dict[str, Any] | None:
        return {name: value for name, value in asdict(self).items() if value is not None} or None


@dataclass(frozen=True, slots=True)
class Spent:
    tokens: int
    cost: float


def spent(tx: Tx, team: Team, since: int) -> Spent:
    """What a team used since then."""
    heard = [for_space(team.space_id), *map(for_member, team.members)]
    own = [turns.c.session_key.startswith(f"agent:{agent}:", autoescape=True) for agent in team.agents]
    used = turns.c.usage
    tokens = used["inputTokens"].as_integer() + used["outputTokens"].as_integer()
    sums = sa.select(sa.func.sum(tokens), sa.func.sum(used["cost"].as_float()))
    shared = turns.c.audience == for_space(team.space_id)
    rows = sums.where(turns.c.audience.in_(heard), turns.c.accepted_at >= since, sa.or_(shared, *own))
    found = tx.conn.execute(rows).one()
    return Spent(int(found[0] or 0), float(found[1] or 0.0))


def periods(now: int) -> dict[str, tuple[int, int]]:
    """When the day and the month began, and when the next ones do."""
    moment = datetime.fromtimestamp(now / 1000, UTC)
    month = moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    after = month.replace(year=month.year + month.month // 12, month=month.month % 12 + 1)
    day = now - now % DAY_MS
    return {
        "day": (day, day + DAY_MS),
        "month": (int(month.timestamp() * 1000), int(after.timestamp() * 1000)),
    }


def require(tx: Tx, among: Sequence[Team]) -> None:
    """`Busy` where each of the teams that a turn could be for has used up what it may."""
    refusals = [_refusal(tx, team) for team in among]
    if refusals and all(one is not None for one in refusals):
        why, again = next(one for one in refusals if one is not None)
        raise Busy(
            why, code="budget_spent", hint=f"It goes on at {iso(again)}, or when the budget is raised."
        )


def _refusal(tx: Tx, team: Team) -> tuple[str, int] | None:
    for name, (since, until) in periods(tx.now).items():
        tokens = getattr(team.budget, f"tokens_per_{name}")
        cost = getattr(team.budget, f"cost_per_{name}")
        if tokens is None and cost is None:
            continue
        used = spent(tx, team, since)
        if tokens is not None and used.tokens >= tokens:
            return f"team {team.id} has used its {tokens:,} tokens of the {name}", until
        if cost is not None and used.cost >= cost:
            return f"team {team.id} has used its {cost:g} of cost of the {name}", until
    return None
