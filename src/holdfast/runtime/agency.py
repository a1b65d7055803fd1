"""The agents' side of a home: who answers, with which tools and skills, and the loop that runs turns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from holdfast.agents.loop import Ask, Runs
from holdfast.agents.loop import Parts as LoopParts
from holdfast.agents.models import Hit, Models, ModelSummariser
from holdfast.agents.skills import SkillRoom
from holdfast.agents.tools import Commands, builtin_toolbox
from holdfast.agents.tools import Parts as ToolParts
from holdfast.board.context_sight import Sight
from holdfast.board.search import SearchAsk
from holdfast.config import Config
from holdfast.context import Trust
from holdfast.context.debug import DebugOutputs
from holdfast.keys import parse_key
from holdfast.log import Session
from holdfast.memory.scope import Chat
from holdfast.memory.service import Ask as MemoryAsk
from holdfast.memory.snippets import citation

if TYPE_CHECKING:
    from holdfast.runtime.hold import Holdfast

RECALLED: Final = 6
_LABEL: Final = re.compile(r"^\[\d{1,2} \w+ \d{4}\] [^:\n]{1,80}: ")


class Agency:
    """Built once for an open home. Nothing here runs by itself: a runner of the agenda runs the turns."""

    def __init__(self, hold: Holdfast) -> None:
        self._hold = hold

        def config() -> Config:
            return hold.settings

        self.models = Models(hold.home, config, hold.clock, search=self._recall)
        self.skills = SkillRoom(hold.home, config, hold.workspace)
        self.processes = Commands()
        self.tools = builtin_toolbox(
            ToolParts(
                store=hold.store,
                threads=hold.threads,
                home=hold.home,
                clock=hold.clock,
                memory=lambda: hold.memory,
                board=lambda: hold.board,
                skills=self.skills,
                courier=self,
                commands=self.processes,
            )
        )
        self.runs = Runs(
            LoopParts(
                store=hold.store,
                threads=hold.threads,
                config=config,
                workspace=hold.workspace,
                context=lambda: hold.context,
                models=self.models,
                tools=self.tools,
                board=lambda: hold.board,
                skills=lambda: self.skills,
                debug=DebugOutputs(hold.home.path / "logs", hold.clock),
            )
        )
        hold.context.use_summariser(ModelSummariser(self.models, config))

    async def send(self, sender: Session, to: str, text: str) -> str:
        """`sessions_send`: words from another session are data there, and never keep it fresh."""
        ask = Ask(
            text=text,
            session_key=to,
            trigger="session",
            trust=Trust.OTHER_SESSION,
            sender=sender.key,
            owner=False,
            source={"fromSessionKey": sender.key},
        )
        return (await self.runs.accept(ask)).run_id

    async def aclose(self) -> None:
        """End what still runs for agents, and give connections back."""
        await self._hold.threads(self.processes.close)
        await self.models.aclose()

    async def _recall(self, question: str, session_key: str | None) -> Sequence[Hit]:
        return await self._hold.threads(self._recalled, question, session_key)

    def _recalled(self, question: str, session_key: str | None) -> list[Hit]:
        """What memory and board hold, in turn: each text once, and not the question itself."""
        named = None if session_key is None else parse_key(session_key).agent_id
        agent = named or self._hold.settings.default_agent_id
        found = self._hold.memory.search(MemoryAsk(question, agent, Chat.of(session_key), RECALLED))
        notes = [
            Hit(_said(hit.snippet), citation(hit.path, hit.start, hit.end).removeprefix("Source: "))
            for hit in found.hits
        ]
        wanted = SearchAsk(q=question, sight=Sight(session_key=session_key), topics=0, tasks=0, logs=RECALLED)
        logged = [Hit(f.text, f"log:{f.item.id}") for f in self._hold.board.search.run(wanted).logs]
        mixed = [hit for pair in zip_longest(notes, logged) for hit in pair if hit is not None]
        once = {hit.text.strip(): hit for hit in reversed(mixed)}
        return [hit for hit in reversed(once.values()) if hit.text.strip() not in ("", question.strip())]


def _said(snippet: str) -> str:
    """The words of an entry without the date and the speaker that the index puts before them."""
    return _LABEL.sub("", snippet)
