"""A table of methods: each with its parameters and the scope that it needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel

from holdfast.gateway.rpc.peer import Peer
from holdfast.gateway.tokens import Scope

In = TypeVar("In", bound=BaseModel)
Run = Callable[[Peer, Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Method:
    params: type[BaseModel]
    run: Run
    scope: Scope


class Methods:
    """Deny by default: reading needs a token that may read, and what is not in the table is not there."""

    def __init__(self) -> None:
        self.table: dict[str, Method] = {}

    def add(
        self, name: str, params: type[In], scope: Scope = Scope.READ
    ) -> Callable[[Callable[[Peer, In], Awaitable[Any]]], Callable[[Peer, In], Awaitable[Any]]]:
        def added(run: Callable[[Peer, In], Awaitable[Any]]) -> Callable[[Peer, In], Awaitable[Any]]:
            self.table[name] = Method(params, run, scope)
            return run

        return added
