"""What is paid for is counted: summaries with the turn that needed them, cut-off turns with what they had."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from loop_stage import Stage, ask, staged

from builders import soon
from holdfast.agents.loop.calling import SummaryCosts
from holdfast.agents.models import ModelSummariser
from holdfast.log import Store, Threads
from holdfast.testing import Asked, Call, Say, Used, too_long

LONG = "We spoke of the boiler, its valve and the plumber's bill at some length. " * 60
SUMMARY = "They spoke of the boiler and its valve; the plumber's bill is open."
TO = "agent:kelp:main"
AGENTS = {"list": [{"id": "main", "default": True}, {"id": "kelp", "model": "scripted/other"}]}


def summarised(asked: Asked) -> bool:
    return "You keep the record" in str(asked.messages[0])


def use_models(stage: Stage) -> None:
    """Two agents with models of their own, and a summariser that books what it costs."""
    whole = stage.settings.model_dump(by_alias=True, exclude_unset=True)
    whole["agents"] = {**whole["agents"], **AGENTS}
    stage.settings = type(stage.settings).model_validate(whole)
    stage.context.use_summariser(
        ModelSummariser(stage.models, lambda: stage.settings, SummaryCosts(stage.store, stage.parts.threads))
    )


def cost(used: dict[str, Any]) -> float:
    return float(round(used["inputTokens"] * 1e-6 + used["outputTokens"] * 2e-6, 9))


def test_a_summary_is_made_by_the_agents_own_model_and_paid_by_the_turn_that_needed_it(
    store: Store, threads: Threads, tmp_path: Path
) -> None:
    def answer(asked: Asked) -> Any:
        if summarised(asked):
            return Say(SUMMARY, used=Used(1000, 100))
        return Say(LONG, used=Used(10, 5))

    async def main() -> None:
        async with staged(store, threads, tmp_path, answer) as stage:
            use_models(stage)
            for number in range(8):
                await stage.say(f"{number}: {LONG}", session_key=TO)
            said = await stage.runs.accept(ask("/compact", session_key=TO))
            assert str(said.reply).startswith("Compacted")
            calls = [r for r in stage.server.requests if summarised(r)]
            assert {r.model for r in calls} == {"other"}
            last = stage.turns(TO)[7]
            assert last.usage is not None
            expected = {"inputTokens": 10 + 1000 * len(calls), "outputTokens": 5 + 100 * len(calls)}
            assert {name: last.usage[name] for name in expected} == expected
            assert round(last.usage["cost"], 9) == cost(expected)
            session = stage.session(TO)
            assert (session.input_tokens, session.output_tokens) == (
                80 + 1000 * len(calls),
                40 + 100 * len(calls),
            )
            told = (await stage.runs.accept(ask("/usage", session_key=TO))).reply
            assert f"${80e-6 + 80e-6 + len(calls) * 1200e-6:.4f}" in str(told)

    asyncio.run(main())


def test_a_summary_in_the_middle_of_a_turn_is_part_of_what_it_used(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    full = [True]

    def answer(asked: Asked) -> Any:
        if summarised(asked):
            full.clear()
            return Say(SUMMARY, used=Used(1000, 100))
        if full and "too much" in asked.last_text:
            return too_long(200_000, 128_000)
        return Say(LONG, used=Used(10, 5))

    async def main() -> None:
        async with staged(sqlite_store, threads, tmp_path, answer) as stage:
            use_models(stage)
            for number in range(8):
                await stage.say(f"{number}: {LONG}", session_key=TO)
            status = await stage.say("this is too much", session_key=TO)
            assert status.ok, status.error
            made = sum(summarised(r) for r in stage.server.requests)
            assert made > 0
            assert status.usage["inputTokens"] == 10 + 1000 * made
            assert stage.session(TO).input_tokens == 90 + 1000 * made

    asyncio.run(main())


def test_a_turn_that_was_cut_off_has_its_cost_in_the_totals_once_whether_it_is_gone_on_with_or_not(
    store: Store, threads: Threads, tmp_path: Path
) -> None:
    async def main() -> None:
        script = [Call("wait", {"word": "a"}, used=Used(100, 10)), Say("Done.", used=Used(200, 20))]
        async with staged(store, threads, tmp_path, script) as stage:
            accepted = await stage.runs.accept(ask("go"))
            await soon(stage.begun.wait())
            await stage.runner.stop(0)
            cut = await stage.runs.status(accepted.run_id)
            assert cut.resumable
            assert (cut.usage["inputTokens"], cut.usage["outputTokens"]) == (100, 10)
            assert cut.usage["cost"] > 0
            assert (stage.session().input_tokens, stage.session().output_tokens) == (100, 10)
            used = (await stage.runs.accept(ask("/usage"))).reply
            assert "in 100" in str(used)
            await stage.runs.resume(accepted.run_id)
            stage.gate.set()
            after = Stage(store, threads, tmp_path, url=stage.server.url)
            await soon(after.runner.drain())
            await after.models.aclose()
            done = await stage.runs.status(accepted.run_id)
            assert (done.reply, done.usage["inputTokens"], done.usage["outputTokens"]) == ("Done.", 300, 30)
            assert (stage.session().input_tokens, stage.session().output_tokens) == (300, 30)

    asyncio.run(main())
