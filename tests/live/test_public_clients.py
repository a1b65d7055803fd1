"""Clients that others wrote, each with one call of its own to a gateway; those not installed are named.

`CONTRIBUTING.md` says how to install them beside the sources. `HOLDFAST_NODE_CLIENTS` is the folder of those
for JavaScript.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "gateway"))

from agent_stage import agents_serving
from serving import Running

from holdfast.testing import Asked, Call, Say, Turn

NODE = Path(os.environ.get("HOLDFAST_NODE_CLIENTS", "/nowhere"))
DEGREES = "It is 13 degrees in Oslo."


def answer(asked: Asked) -> Turn:
    """Asks for the weather with the client's tool, whatever its name, and tells what it was given."""
    if any("13" in str(m["content"]) for m in asked.messages if m["role"] == "tool"):
        return Say(DEGREES)
    theirs = next((name for name in asked.tools if "weather" in name), None)
    return Say("Good morning.") if theirs is None else Call(theirs, {"place": "Oslo"}, id="call_w")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Running]:
    # It imports in circles, so that two threads must not begin with it: the gateway's, and a test's.
    import pydantic_ai.models.openai  # noqa: F401

    with agents_serving(tmp_path_factory.mktemp("clients") / "home", sqlite_template, answer) as (found, _):
        yield found


@pytest.fixture
def at(gateway: Running) -> dict[str, str]:
    return {"base_url": f"{gateway.url}/v1", "api_key": gateway.admin}


def needs(module: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_spec(module) is None, reason=f"{module} is not installed (PyPI)")


def weather(place: str) -> str:
    """The weather at a place."""
    return f"13 degrees in {place}"


def test_openai_chat_responses_with_tools_and_embeddings(at: dict[str, str]) -> None:
    from openai import OpenAI

    with OpenAI(**at) as client:  # type: ignore[arg-type]
        said = client.chat.completions.create(model="holdfast", messages=[{"role": "user", "content": "hi"}])
        assert said.choices[0].message.content == "Good morning."
        schema = {"type": "object", "properties": {"place": {"type": "string"}}}
        tool: Any = {"type": "function", "name": "weather", "parameters": schema, "strict": False}
        first = client.responses.create(model="holdfast", input="How is it in Oslo?", tools=[tool])
        (call,) = [item for item in first.output if item.type == "function_call"]
        result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": weather("Oslo")}
        second = client.responses.create(
            model="holdfast", input=[result], tools=[tool], previous_response_id=first.id
        )
        assert second.output_text == DEGREES
        assert client.embeddings.create(model="holdfast-embedding", input="heron").data[0].embedding


@needs("pydantic_ai")
@pytest.mark.parametrize("form", ["chat", "responses"])
def test_pydantic_ai(at: dict[str, str], form: str) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    kind: Any = OpenAIChatModel if form == "chat" else OpenAIResponsesModel
    agent = Agent(kind("holdfast", provider=OpenAIProvider(**at)), tools=[weather])  # type: ignore[call-overload]
    assert asyncio.run(agent.run("How is it in Oslo?")).output == DEGREES


@needs("litellm")
def test_litellm(at: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    sent = {"api_base": at["base_url"], "api_key": at["api_key"]}
    said = litellm.completion(model="openai/holdfast", messages=[{"role": "user", "content": "hi"}], **sent)
    assert said.choices[0].message.content == "Good morning."
    assert litellm.embedding(model="openai/holdfast-embedding", input=["heron"], **sent).data[0]["embedding"]
    pytest.importorskip("mcp", reason="LiteLLM's responses need mcp (PyPI)")
    got = litellm.responses(model="openai/holdfast", input="hi", **sent)
    assert got.output[0].content[0].text == "Good morning."


@needs("langchain_openai")
@pytest.mark.parametrize("responses", [False, True])
def test_langchain(at: dict[str, str], responses: bool) -> None:
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings

    chat = ChatOpenAI(model="holdfast", use_responses_api=responses, **at)
    called = chat.bind_tools([weather]).invoke("How is it in Oslo?").tool_calls
    assert [(call["name"], call["args"]) for call in called] == [("weather", {"place": "Oslo"})]
    assert chat.invoke("hi").text == "Good morning."
    made = OpenAIEmbeddings(model="holdfast-embedding", check_embedding_ctx_length=False, **at)
    assert made.embed_query("heron")


@needs("llm")
def test_llm(at: dict[str, str]) -> None:
    from llm.default_plugins.openai_models import Chat

    model = Chat("holdfast", model_name="holdfast", api_base=at["base_url"], key=at["api_key"])
    assert model.prompt("hi", stream=False).text() == "Good morning."


SCRIPT = """
import { createOpenAI } from '@ai-sdk/openai';
import { generateText, streamText, embed, tool, jsonSchema, stepCountIs } from 'ai';
const openai = createOpenAI({ baseURL: process.env.URL, apiKey: process.env.KEY });
const weather = tool({
  description: 'The weather at a place.',
  inputSchema: jsonSchema({ type: 'object', properties: { place: { type: 'string' } } }),
  execute: async ({ place }) => `13 degrees in ${place}`,
});
const told = {};
for (const [name, model] of [['responses', openai('holdfast')], ['chat', openai.chat('holdfast')]]) {
  const asked = { model, prompt: 'How is it in Oslo?', tools: { weather }, stopWhen: stepCountIs(3) };
  told[name] = (await generateText(asked)).text;
  told[`${name} stream`] = await streamText(asked).text;
}
const made = await embed({ model: openai.embedding('holdfast-embedding'), value: 'heron' });
told.embedding = made.embedding.length > 0;
console.log(JSON.stringify(told));
"""


def node() -> str | None:
    return shutil.which("node", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")


@pytest.mark.skipif(
    not (NODE / "node_modules/@ai-sdk/openai").is_dir() or node() is None,
    reason="@ai-sdk/openai is not installed (npm); see HOLDFAST_NODE_CLIENTS",
)
def test_ai_sdk(at: dict[str, str]) -> None:
    env = {**os.environ, "URL": at["base_url"], "KEY": at["api_key"]}
    program = [str(node()), "--input-type=module", "-e", SCRIPT]
    done = subprocess.run(program, cwd=NODE, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told.pop("embedding") is True
    assert told == dict.fromkeys(("responses", "responses stream", "chat", "chat stream"), DEGREES)
