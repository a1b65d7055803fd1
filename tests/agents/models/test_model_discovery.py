"""At first start: what is there without any setting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from model_stage import asked, config, run, stage

from holdfast.agents.models import ModelAbout, ModelRef, ModelRequest
from holdfast.testing import Say, ScriptedAnthropic, ScriptedOpenAI, ScriptedServer


def only(**servers: str) -> dict[str, Any]:
    """Nothing but these local servers, so that a test never meets a real one."""
    return {"models": {"mode": "replace", "providers": {n: {"baseUrl": u} for n, u in servers.items()}}}


def test_a_local_server_is_found_with_its_models_and_answers_without_a_key(tmp_path: Path) -> None:
    with ScriptedOpenAI([Say("From here.")], models=("nomic-embed-text", "llama3:8b", "qwen3:4b")) as served:
        given = only(ollama=served.url, lmstudio="http://127.0.0.1:9/v1")
        made = stage(tmp_path, given)

        async def first_start() -> str:
            assert [str(ref) for ref in made.models.choice(config(given).agent("main"))] == [
                "holdfast/recall"
            ]
            [found] = await made.models.discover()
            assert (found.provider, found.models) == ("ollama", ("llama3:8b", "qwen3:4b"))
            refs = made.models.choice(config(given).agent("main"))
            assert refs == [ModelRef("ollama", "llama3:8b")]
            await made.models.warm(refs)

            async def build(about: ModelAbout) -> ModelRequest:
                return asked()

            return (await made.models.answer(refs, build, agent_id="main")).reply.text

        assert run(made, first_start) == "From here."


def test_the_report_tells_of_every_place_that_was_looked_at(tmp_path: Path) -> None:
    with ScriptedOpenAI(models=("llama3:8b",)) as served:
        given = only(ollama=served.url, llamacpp="http://127.0.0.1:9/v1")
        given["models"]["providers"]["openai"] = {}
        given["models"]["providers"]["anthropic"] = {}
        made = stage(tmp_path, given, env={"OPENAI_API_KEY": "sk-111111111111"})
        rows = run(made, made.models.report)
    told = {row.provider: (row.found, row.text) for row in rows}
    assert told["openai"] == (True, "credential openai:env:OPENAI_API_KEY, would use gpt-5.4")
    assert told["anthropic"] == (False, "no key (ANTHROPIC_API_KEY)")
    assert told["ollama"] == (True, f"at {served.url}: llama3:8b")
    assert told["llamacpp"] == (False, "no answer at http://127.0.0.1:9/v1")
    assert "sk-1111" not in str(rows)


def test_servers_are_asked_once_for_the_process_unless_a_fresh_look_is_wanted(tmp_path: Path) -> None:
    served = ScriptedOpenAI(models=("one",)).start()
    given = only(ollama=served.url)
    made = stage(tmp_path, given)

    async def twice() -> tuple[int, int]:
        await made.models.discover()
        served.close()
        kept = await made.models.discover()
        return len(kept), len(await made.models.discover(refresh=True))

    assert run(made, twice) == (1, 0)


def test_a_server_that_is_something_else_or_says_nothing_is_passed_over(tmp_path: Path) -> None:
    class Odd(ScriptedServer):
        api = "openai-completions"

        def listing(self) -> dict[str, Any]:
            return {"data": "nothing of the kind"}

    class Told(ScriptedAnthropic):
        def listing(self) -> dict[str, Any]:
            return json.loads('{"data": [{"id": "m", "meta": {"n_ctx_train": 40960}}, {"id": ""}, 7]}')

    with Odd() as odd, Told() as told:
        made = stage(tmp_path, only(ollama=f"{odd.origin}/v1", llamacpp=f"{told.origin}/v1"))
        [found] = run(made, made.models.discover)
        assert found.provider == "llamacpp"
        assert made.models.about(ModelRef("llamacpp", "m")).window == 40_960
