"""At first start: what is there without any setting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from model_stage import asked, config, run, stage

from holdfast.agents.models import ModelAbout, ModelRef, ModelRequest
from holdfast.testing import Say, ScriptedAnthropic, ScriptedOpenAI, ScriptedServer, cut_off


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


class Telling(ScriptedOpenAI):
    """A server that tells more of itself, as its kind does: by path, what it answers."""

    def __init__(self, told: dict[str, Any], *script: Any, listed: dict[str, Any] | None = None) -> None:
        super().__init__(script, models=("m",))
        self.told = told
        self.listed = listed or {}

    def listing(self) -> dict[str, Any]:
        return {"data": [{"id": "m", **self.listed}]}

    def other(self, path: str) -> dict[str, Any] | None:
        return self.told.get(path)


PROPS = {
    "default_generation_settings": {"n_ctx": 4096},
    "modalities": {"vision": True},
    "model_path": "/m.gguf",
    "chat_template": "{{ raise_exception('Conversation roles must alternate') }}",
    "chat_template_caps": {"supports_system_role": False, "supports_tools": False},
}
SHOWN = {
    "capabilities": ["completion", "vision", "thinking"],
    "model_info": {"gemma3.context_length": 131072},
    "parameters": 'stop    "<end>"\nnum_ctx    16384',
}
LISTED = {"id": "m", "type": "vlm", "max_context_length": 32768, "loaded_context_length": 8192}


def test_llama_cpp_tells_of_its_window_and_what_its_template_takes(tmp_path: Path) -> None:
    with Telling({"/props": PROPS}) as server:
        made = stage(tmp_path, only(llamacpp=server.url))
        run(made, made.models.discover)
        about = made.models.about(ModelRef("llamacpp", "m"))
    assert (about.window, about.images) == (4096, True)
    assert (about.fit.alternates, about.fit.system, about.fit.tools) == (True, False, "prompt")


def test_ollama_is_taken_at_the_window_that_it_runs_with(tmp_path: Path) -> None:
    def window(told: dict[str, Any], folder: str) -> tuple[int, str, bool]:
        with Telling(told) as server:
            made = stage(tmp_path / folder, only(ollama=server.url))
            run(made, made.models.discover)
            about = made.models.about(ModelRef("ollama", "m"))
        return about.window, about.fit.tools, about.thinks

    loaded = {"models": [{"model": "m", "context_length": 32768}]}
    assert window({"/api/show": SHOWN}, "a") == (16384, "prompt", True)
    assert window({"/api/show": SHOWN, "/api/ps": loaded}, "b") == (32768, "prompt", True)
    assert window({"/api/show": SHOWN | {"parameters": ""}}, "c") == (4096, "prompt", True)


def test_ollama_is_asked_again_once_it_has_loaded_the_model(tmp_path: Path) -> None:
    with Telling({"/api/show": SHOWN}, Say("Hi."), Say("Hello.")) as server:
        made = stage(tmp_path, only(ollama=server.url))
        run(made, lambda: made.answer("ollama/m"))
        server.told["/api/ps"] = {"models": [{"model": "m", "context_length": 32768}]}
        run(made, lambda: made.answer("ollama/m"))
        assert [about.window for about in made.built] == [16384, 32768]


def test_lm_studio_and_vllm_tell_in_their_lists(tmp_path: Path) -> None:
    row = LISTED | {"capabilities": ["tool_use"]}
    with (
        Telling({"/api/v0/models": {"data": [row]}}) as studio,
        Telling({}, listed={"max_model_len": 2048}) as vllm,
    ):
        made = stage(tmp_path, only(lmstudio=studio.url, mine=vllm.url))
        run(made, made.models.discover)
        there = made.models.about(ModelRef("lmstudio", "m"))
        assert (there.window, there.images, there.fit.tools) == (8192, True, "native")
        assert made.models.about(ModelRef("mine", "m")).window == 2048


def test_a_server_that_was_not_there_at_the_start_is_met_before_its_first_call_and_again_after_a_break(
    tmp_path: Path,
) -> None:
    with Telling({"/props": PROPS}, Say("Hi."), cut_off("hal"), Say("Hello.")) as server:
        made = stage(tmp_path, only(llamacpp=server.url))
        run(made, lambda: made.answer("llamacpp/m"))
        assert made.built[-1].window == 4096
        server.told = {"/props": PROPS | {"default_generation_settings": {"n_ctx": 8192}}}
        run(made, lambda: made.answer("llamacpp/m"))
        assert made.built[-1].window == 4096
        server.add(Say("Again."))
        run(made, lambda: made.answer("llamacpp/m"))
        assert made.built[-1].window == 8192


def test_a_server_that_said_nothing_once_is_asked_again_before_the_next_call(tmp_path: Path) -> None:
    class Shy(Telling):
        asked = 0

        def listing(self) -> dict[str, Any]:
            self.asked += 1
            if self.asked == 1:
                raise ConnectionError("hung up")
            return super().listing()

    with Shy({"/props": PROPS}, Say("Hi."), Say("Hello."), Say("Once more.")) as server:
        made = stage(tmp_path, only(llamacpp=server.url))
        for _ in range(3):
            run(made, lambda: made.answer("llamacpp/m"))
        assert [about.window for about in made.built] == [128_000, 4096, 4096]
