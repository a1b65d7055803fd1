"""What is known of Discord's channels: whose chat one is, a thread's parent, how far each was heard."""

from __future__ import annotations

import json
from typing import Any, Final

from holdfast.channels import ChannelContext

FILE: Final = "places.json"


class Places:
    """Kept in a file, for Discord tells none of it to a bot that starts again."""

    def __init__(self, context: ChannelContext) -> None:
        self._file = context.folder / FILE
        try:
            self._known: dict[str, dict[str, Any]] = json.loads(self._file.read_text("utf-8"))
        except (OSError, ValueError):
            self._known = {}

    def seen(self) -> list[tuple[int, int]]:
        """Channels, each with the last message that was taken in there."""
        return [(int(id_), one["seen"]) for id_, one in self._known.items() if "seen" in one]

    def is_heard(self, channel: int) -> bool:
        return "seen" in self._of(channel)

    def heard(self, channel: int, message: int) -> None:
        self._put(channel, seen=max(message, int(self._of(channel).get("seen") or 0)))

    def opened(self, channel: int, person: int) -> None:
        self._put(channel, person=person)

    def person(self, channel: int) -> int | None:
        return self._of(channel).get("person")

    def direct(self, person: str) -> int | None:
        found = (int(id_) for id_, one in self._known.items() if str(one.get("person")) == person)
        return next(found, None)

    def found(self, channel: int, parent: int) -> None:
        self._put(channel, parent=parent)

    def parent(self, channel: int) -> int | None:
        return self._of(channel).get("parent")

    def in_guild(self, channel: int, guild: int | None) -> None:
        if guild is not None:
            self._put(channel, guild=guild)

    def guild(self, channel: int) -> int | None:
        return self._of(channel).get("guild")

    def _of(self, channel: int) -> dict[str, Any]:
        return self._known.get(str(channel), {})

    def _put(self, channel: int, **facts: int) -> None:
        before = self._of(channel)
        after = {**before, **facts}
        if after == before:
            return
        self._known[str(channel)] = after
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self._file.with_suffix(".new")
        draft.write_text(json.dumps(self._known), "utf-8")
        draft.replace(self._file)
