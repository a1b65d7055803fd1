"""Builders for the lossless engine: a stage with its slot set, long work in its log, and looks inside."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from context_builders import Stage, used_tool

from holdfast.context import AssembleParams, AssembleResult, CompactResult, Message
from holdfast.context.lossless import LosslessEngine, Problem, Projection, check, projections
from holdfast.context.lossless.recall import answer_tool
from holdfast.context.tokens import message_tokens
from holdfast.log import OWNER, Store, Threads, sessions

WINDOW = 20_000


class Lossless(Stage):
    """A stage whose engine is `lossless`, with small bounds so that a short log has several levels."""

    def __init__(
        self, store: Store, threads: Threads, home: Path, *, settings: Any = None, **more: Any
    ) -> None:
        config = {
            "plugins": {
                "slots": {"contextEngine": "lossless"},
                "entries": {"lossless": {"config": settings or {}}},
            }
        }
        more.setdefault("window", WINDOW)
        super().__init__(store, threads, home, config=config, **more)

    @property
    def engine(self) -> LosslessEngine:
        engine = self.room.engine(self.session.agent_id)
        assert isinstance(engine, LosslessEngine)
        return engine

    def work(self, turns: int, *, start: int = 0, words: int = 60) -> None:
        """Turns of work; every third uses a tool."""
        self.past(
            (
                f"question {n} about part_{n} " + f"word{n} " * words,
                used_tool(n, f"result {n} " * words) if n % 3 == 0 else (),
            )
            for n in range(start, start + turns)
        )

    def compact(self, **options: Any) -> CompactResult:
        options.setdefault("window", self.window)
        return asyncio.run(self.room.compact(self.fresh(), **options))

    def assemble(self, budget: int = 15_000, **more: Any) -> AssembleResult:
        params = AssembleParams(
            session_id=self.session.id,
            session_key=self.session.key,
            messages=(),
            token_budget=budget,
            estimate=message_tokens,
            **more,
        )
        return asyncio.run(self.engine.assemble(params))

    def projection(self, session_id: str | None = None) -> Projection:
        with self.store.read(OWNER) as tx:
            return projections.of(tx, session_id or self.session.id, retain_depth=2)

    def problems(self, session_id: str | None = None) -> list[Problem]:
        with self.store.read(OWNER) as tx:
            return check(tx, session_id or self.session.id)

    def tool(self, name: str, session_id: str | None = None, **arguments: Any) -> dict[str, Any]:
        with self.store.read(OWNER) as tx:
            session = sessions.get(tx, session_id or self.session.id)
        return answer_tool(self.store, name, arguments, session=session)

    def read_all(self, id_: str, session_id: str | None = None, limit: int = 3000) -> str:
        """All pages behind an id, put together again."""
        parts: list[str] = []
        last, start = "", None
        while True:
            given = {"id": id_, "limit": limit} | ({} if start is None else {"from": start})
            page = self.tool("context_read", session_id, **given)
            for piece in page["entries"]:
                if piece["entryId"] == last:
                    parts[-1] += piece["text"]
                else:
                    parts.append(piece["text"])
                last = piece["entryId"]
            start = page["next"]
            if start is None:
                return "\n".join(parts)


def kinds(messages: Sequence[Message]) -> list[str]:
    return [m.kind for m in messages]
