"""What the settings of compaction and of the flush before it change."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from holdfast.clock import ManualClock
from holdfast.config.agents import Compaction
from holdfast.context import UserMessage, flush_plan
from holdfast.context.budget import is_near
from holdfast.context.summaries import SummaryRequest, summarise

SAID = [UserMessage(text="Ticket HF-1234 is about commit 9f8e7d6c5b4a in /srv/holdfast/log.py.")]


@dataclass
class Summariser:
    """Notes what it is asked for; without words it fails, and told to it never answers."""

    words: str = ""
    hangs: bool = False
    asked: list[SummaryRequest] = field(default_factory=list)

    async def summarise(self, request: SummaryRequest) -> str:
        self.asked.append(request)
        if self.hangs:
            await asyncio.Event().wait()
        return self.words


def summed(summariser: Summariser, **given: Any) -> str | None:
    settings = Compaction.model_validate(given)
    return asyncio.run(summarise(summariser, SAID, None, settings)).fault


def test_exact_identifiers_need_not_survive_where_the_config_says_so() -> None:
    loose, strict = Summariser(), Summariser()
    summed(loose, identifierPolicy="off")
    summed(strict)
    assert loose.asked[0].must_keep == ()
    assert "HF-1234" in strict.asked[0].must_keep


def test_a_failing_summary_is_asked_for_again_as_often_as_the_config_says() -> None:
    often, never = Summariser(), Summariser()
    assert summed(often, qualityGuard={"maxRetries": 3}) is not None
    assert summed(never, qualityGuard={"enabled": False, "maxRetries": 3}) is not None
    assert (len(often.asked), len(never.asked)) == (4, 1)


def test_a_summary_is_waited_for_as_long_as_the_config_says() -> None:
    slow = Summariser(hangs=True)
    assert summed(slow, timeoutSeconds=1, qualityGuard={"enabled": False}) == "timeout"


def test_a_long_transcript_is_flushed_at_the_size_and_in_the_words_of_the_config(clock: ManualClock) -> None:
    flush = {"forceBytes": 1_000, "systemPrompt": "Write in verse."}
    settings = Compaction.model_validate({"memoryFlush": flush})
    assert is_near(settings, used=0, window=128_000, transcript_bytes=2_000)
    assert not is_near(Compaction(), used=0, window=128_000, transcript_bytes=2_000)
    assert flush_plan(settings, clock.now(), "UTC").system_prompt == "Write in verse."
