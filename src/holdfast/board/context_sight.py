"""From where something is looked at, and by whom: hashable, so that answers can be kept by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.board.visibility import View, resolve
from holdfast.log import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What a request says of where it looks from, and the limits of its caller; None is no limit."""

    space_id: str | None = None
    session_key: str | None = None
    allowed_ids: frozenset[str] | None = None
    principal_spaces: frozenset[str] | None = None
    agents: frozenset[str] | None = None

    def view(self, tx: Tx) -> View:
        return resolve(
            tx,
            space_id=self.space_id,
            session_key=self.session_key,
            allowed_ids=self.allowed_ids,
            principal_spaces=self.principal_spaces,
        )

    def sees_agent(self, agent_id: str | None) -> bool:
        return self.agents is None or agent_id in self.agents


EVERYWHERE: Final = Sight()
