"""The room: models in order, credentials in turn, waits that are asked for, and an account of it all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from model_stage import Stage, config, providers, run, stage

from holdfast.agents.models import Attempt, ModelFailure, ModelRef, ModelReply, Restarted, TextDelta
from holdfast.agents.models.failures import LONGEST_MS, RETRIES, after, pause_ms
from holdfast.testing import (
    Asked,
    Fail,
    Say,
    ScriptedAnthropic,
    ScriptedOpenAI,
    ScriptedServer,
    broken,
    cut_off,
    no_credit,
    overloaded,
    rate_limited,
    too_long,
    unauthorised,
)
from holdfast.testing.script import Turn


def two(tmp_path: Path, first: ScriptedServer, second: ScriptedServer) -> Stage:
    return stage(tmp_path, {"models": {"providers": providers(first, second)}})


def reasons(attempts: Sequence[Attempt]) -> list[tuple[str, str | None]]:
    return [(str(a.ref), a.reason) for a in attempts]


def test_the_next_model_answers_when_the_first_stays_broken(tmp_path: Path) -> None:
    with ScriptedOpenAI([overloaded()] * 3) as bad, ScriptedAnthropic([Say("Here I am.")]) as good:
        made = two(tmp_path, bad, good)
        answered = run(made, lambda: made.answer("a/m", "b/n"))
    assert answered.reply.text == "Here I am."
    assert str(answered.about.ref) == "b/n"
    assert reasons(answered.attempts) == [("a/m", "overloaded")] * 3 + [("b/n", None)]
    assert made.slept == [0.5, 1.0]
    assert [str(about.ref) for about in made.built] == ["a/m", "b/n"], "the request is built for each model"
    assert answered.attempts[0].credential == "a:config"


def test_retry_after_is_waited_for_and_the_same_model_answers(tmp_path: Path) -> None:
    with ScriptedOpenAI([rate_limited(retry_after=7), Say("At last.")]) as served:
        made = stage(tmp_path, {"models": {"providers": providers(served)}})
        answered = run(made, lambda: made.answer("a/m"))
    assert made.slept == [7.0]
    assert answered.attempts[1].waited_ms == 7000
    assert answered.reply.text == "At last."


def test_a_provider_that_asks_for_an_hour_is_left_for_the_next(tmp_path: Path) -> None:
    with (
        ScriptedOpenAI([rate_limited(retry_after=3600)]) as bad,
        ScriptedOpenAI([Say("ok"), Say("ok")]) as good,
    ):
        made = two(tmp_path, bad, good)
        assert run(made, lambda: made.answer("a/m", "b/n")).reply.text == "ok"
        assert made.slept == []
        again = run(made, lambda: made.answer("a/m", "b/n"))
    assert reasons(again.attempts) == [("b/n", None)], "it rests, so it is not even asked"


@pytest.mark.parametrize(
    "trouble", [unauthorised(), no_credit(), rate_limited()], ids=["auth", "billing", "rate"]
)
def test_the_next_credential_is_used_when_one_is_refused_and_the_refused_one_rests(
    tmp_path: Path, trouble: Turn
) -> None:
    def by_key(asked: Asked) -> Turn:
        return Say("Welcome.") if asked.key.startswith("sk-good") else trouble

    with ScriptedAnthropic(by_key) as served:
        given = providers(served)
        given["a"]["apiKey"] = "sk-bad-1111111"
        made = stage(tmp_path, {"models": {"providers": given}})
        made.models.credentials.put("main", "a:spare", "a", "sk-good-111111")
        auth = {"models": {"providers": given}, "auth": {"order": {"a": ["a:config", "a:spare"]}}}
        made = stage(tmp_path, auth)
        answered = run(made, lambda: made.answer("a/m", agent_id="work"))
        assert [a.credential for a in answered.attempts] == ["a:config", "a:spare"]
        assert made.slept == []
        later = stage(tmp_path, auth, clock=made.clock)
        again = run(later, lambda: later.answer("a/m"))
        assert [a.credential for a in again.attempts] == ["a:spare"], "a restart remembers"


@pytest.mark.parametrize(
    ("turn", "reason"), [(too_long(), "context_overflow"), (Fail(400, "no such field"), "bad_request")]
)
def test_a_fault_of_the_request_is_raised_at_once(tmp_path: Path, turn: Turn, reason: str) -> None:
    with ScriptedOpenAI([turn]) as bad, ScriptedOpenAI([Say("never")]) as good:
        made = two(tmp_path, bad, good)
        with pytest.raises(ModelFailure) as failed:
            run(made, lambda: made.answer("a/m", "b/n"))
        assert failed.value.reason == reason
        assert str(failed.value.ref) == "a/m"
        assert good.requests == []


def test_what_was_shown_of_a_broken_answer_is_called_back(tmp_path: Path) -> None:
    with ScriptedOpenAI([cut_off("The answer is fo"), Say("The answer is 42.", chunks=1)]) as served:
        made = stage(tmp_path, {"models": {"providers": providers(served)}})
        run(made, lambda: made.answer("a/m"))
    at = made.events.index(Restarted("cut_off"))
    shown = made.events[:at]
    assert "".join(e.text for e in shown if isinstance(e, TextDelta)) == "The answer is fo"
    assert made.events[at + 1] == TextDelta("The answer is 42.")
    assert isinstance(made.events[-1], ModelReply)
    assert sum(isinstance(e, ModelReply) for e in made.events) == 1


def test_when_all_fail_the_message_tells_what_was_tried(tmp_path: Path) -> None:
    with ScriptedOpenAI([unauthorised()]) as one, ScriptedAnthropic([cut_off("half")] * 2) as other:
        made = two(tmp_path, one, other)
        with pytest.raises(ModelFailure) as failed:
            run(made, lambda: made.answer("a/m", "nobody/x", "openai/gpt-5", "b/n"))
    error = failed.value
    assert (error.reason, error.partial) == ("cut_off", "half")
    for told in (
        "a/m with a:config: auth",
        "nobody/x: not_configured",
        "openai/gpt-5: not_configured",
        "b/n with b:config: cut_off (2 times)",
    ):
        assert told in error.message


def test_a_resting_model_is_asked_when_nothing_else_is_left_and_success_clears_it(tmp_path: Path) -> None:
    with ScriptedOpenAI([unauthorised(), Say("mended")]) as served:
        made = stage(tmp_path, {"models": {"providers": providers(served)}})
        with pytest.raises(ModelFailure):
            run(made, lambda: made.answer("a/m"))
        assert made.models.credentials.rest("a:config").resting(made.clock.now())
        assert run(made, lambda: made.answer("a/m")).reply.text == "mended"
        assert not made.models.credentials.rest("a:config").resting(made.clock.now())


def test_a_header_that_refers_to_nothing_is_a_matter_of_configuration(tmp_path: Path) -> None:
    with ScriptedOpenAI([]) as first, ScriptedOpenAI([Say("ok")]) as second:
        given = providers(first, second)
        given["a"]["headers"] = {"X-Team": "${TEAM}"}
        given["b"]["headers"] = {"X-Team": "kelp"}
        made = stage(tmp_path, {"models": {"providers": given}})
        answered = run(made, lambda: made.answer("a/m", "b/n"))
    assert reasons(answered.attempts) == [("a/m", "not_configured"), ("b/n", None)]
    assert second.requests[0].headers["x-team"] == "kelp"


def test_no_answer_is_tried_without_end(tmp_path: Path) -> None:
    with ScriptedOpenAI(lambda _: broken()) as served:
        made = stage(tmp_path, {"models": {"providers": providers(served)}})
        with pytest.raises(ModelFailure):
            run(made, lambda: made.answer(*(f"a/m{n}" for n in range(5))))
        assert len(served.requests) == 5 * (1 + RETRIES["overloaded"])


def test_a_secret_is_in_no_log_and_no_message(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    with ScriptedOpenAI([Fail(401, "Incorrect API key: sk-a-1234567890")]) as served:
        made = stage(tmp_path, {"models": {"providers": providers(served)}})
        with pytest.raises(ModelFailure) as failed:
            run(made, lambda: made.answer("a/m"))
    assert "Incorrect API key: ***" in failed.value.message
    ours = [r.getMessage() for r in caplog.records if r.name.startswith("holdfast")]
    assert ours
    assert not any("sk-a-1234567890" in line for line in ours)


def test_waits_double_with_some_spread_and_never_pass_the_ceiling() -> None:
    failed = ModelFailure("x", "overloaded")
    assert [pause_ms(failed, n, 0.5) for n in (1, 2, 3)] == [500, 1000, 2000]
    assert pause_ms(failed, 1, 0.0) < pause_ms(failed, 1, 1.0)
    assert pause_ms(failed, 60, 0.5) == LONGEST_MS
    assert pause_ms(ModelFailure("x", "rate_limit", retry_after_ms=10**9), 1, 0.5) == LONGEST_MS
    assert after(ModelFailure("x", "not_found"), 1, 3) == "model"


def test_the_choice_is_the_override_then_the_agents_own_then_what_was_found(tmp_path: Path) -> None:
    def chosen(given: dict[str, object], env: dict[str, str], override: str | None = None) -> list[str]:
        made = stage(tmp_path, given, env=env)
        return [str(ref) for ref in made.models.choice(config(given).agent("main"), override)]

    own = {"agents": {"defaults": {"model": {"primary": "openai/x", "fallbacks": ["a/y", "openai/x"]}}}}
    assert chosen(own, {}) == ["openai/x", "a/y"]
    assert chosen(own, {}, "b/z") == ["b/z", "a/y", "openai/x"]
    assert chosen({}, {"OPENAI_API_KEY": "sk-1111111111"}) == ["openai/gpt-5.4"]
    assert chosen({}, {}) == ["holdfast/recall"]
    local = {"models": {"providers": {"mine": {"baseUrl": "http://127.0.0.1:9/v1", "models": [{"id": "q"}]}}}}
    assert chosen(local, {"OPENAI_API_KEY": "sk-1111111111"}) == ["mine/q"]


def test_a_reload_of_the_config_takes_effect_at_the_next_call(tmp_path: Path) -> None:
    given: dict[str, object] = {}
    made = stage(tmp_path, given)
    ref = ModelRef.parse("mine/q")
    with pytest.raises(ModelFailure, match="no provider"):
        made.models.about(ref)
    given["models"] = {
        "providers": {
            "mine": {"baseUrl": "http://127.0.0.1:9/v1", "models": [{"id": "q", "contextWindow": 9000}]}
        }
    }
    assert made.models.about(ref).window == 9000
