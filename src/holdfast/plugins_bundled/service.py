"""What the chat services have in common: a library that is an extra, options they need, small state files."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

from holdfast.channels import BaseChannel, ChannelContext, SendFailed

T = TypeVar("T")

BAD_TOKEN_MS: Final = 60_000
_MOST_TOLD: Final = 300


class ServiceChannel(BaseChannel):
    """One account of a service. `extra` brings its `libraries`; without the options that it `needs` it does
    not start."""

    extra: ClassVar[str]
    libraries: ClassVar[tuple[str, ...]]
    needs: ClassVar[tuple[str, ...]] = ()

    def __init__(self, context: ChannelContext) -> None:
        try:
            for library in self.libraries:
                import_module(library)
        except ImportError as error:
            install = f"pip install 'holdfast[{self.extra}]'"
            said = f"{self.extra} needs a library that is not installed ({error.name}): {install}"
            raise SendFailed(said) from error
        self.name = context.name
        self._context = context
        for name in self.needs:
            self.needed(name)

    def option(self, name: str, default: str = "") -> str:
        return str(self._context.options.get(name) or default)

    def needed(self, name: str) -> str:
        """An option that has to be there."""
        found = self.option(name)
        if not found:
            raise SendFailed(f"channel {self.name} has no options.{name}")
        return found

    def read_state(self, name: str) -> dict[str, Any] | None:
        return read_state(self._context.folder / name)

    def write_state(self, name: str, value: Mapping[str, Any]) -> None:
        write_state(self._context.folder / name, value)


def read_state(path: Path) -> dict[str, Any] | None:
    """What was kept; None where there is nothing that can be read."""
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found


def write_state(path: Path, value: Mapping[str, Any]) -> None:
    """Whole or not at all."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(value), "utf-8")
    draft.replace(path)


async def called(work: Awaitable[T], failure: Callable[[Exception], SendFailed]) -> T:
    """What a call to the library gave, or its failure in our words."""
    try:
        return await work
    except SendFailed:
        raise
    except Exception as error:
        raise failure(error) from error


def asks_to_wait(service: str, seconds: float) -> SendFailed:
    return SendFailed(f"{service} asks to wait", wait_ms=int(seconds * 1000) + 100)


def bad_token(said: str) -> SendFailed:
    """Tried again now and then: someone may put a good one in."""
    return SendFailed(f"{said}: the token is not good"[:_MOST_TOLD], wait_ms=BAD_TOKEN_MS)
