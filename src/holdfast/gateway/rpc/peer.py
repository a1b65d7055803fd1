"""What a method may do with the connection that it was called on."""

from __future__ import annotations

from typing import Any, Protocol

from holdfast.gateway.context import Gateway
from holdfast.gateway.scope import Ask
from holdfast.gateway.tokens import Principal


class Peer(Protocol):
    """One connection with a caller who has shown a token."""

    @property
    def here(self) -> Gateway: ...

    @property
    def caller(self) -> Principal: ...

    def follow_run(self, run_id: str) -> None:
        """Send the run's events as `agent.event`, to its end; `Busy` if too many are followed."""

    def unfollow_run(self, run_id: str) -> bool: ...

    def subscribe(self, ask: Ask, after: int) -> str:
        """Send changes behind `after` as `events.change`; the subscription's id."""
        ...

    def unsubscribe(self, id_: str) -> bool: ...

    def told(self) -> dict[str, Any]:
        """Who the connection speaks for."""
        ...
