"""From where something is looked at, and by whom: hashable, so that answers can be kept by it."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.board.visibility import View, resolve
from holdfast.log import Reader, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """Who reads, from where a request says it looks, and the limits of its caller; None is no limit."""

    reader: Reader
    space_id: str | None = None
    session_key: str | None = None
    allowed_ids: frozenset[str] | None = None
    principal_spaces: frozenset[str] | None = None

    def view(self, tx: Tx) -> View:
        return resolve(
            tx,
            space_id=self.space_id,
            session_key=self.session_key,
            allowed_ids=self.allowed_ids,
            principal_spaces=self.principal_spaces,
        )
