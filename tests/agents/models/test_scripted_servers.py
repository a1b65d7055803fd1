"""The scripted servers themselves, through the providers' own clients, so that tests can rely on them."""

from __future__ import annotations

import asyncio

import openai
import pytest

from holdfast.testing import (
    Asked,
    Call,
    Fail,
    Say,
    ScriptedAnthropic,
    ScriptedOpenAI,
    Used,
    rate_limited,
    too_long,
)


def test_openais_client_is_served_whole_and_in_a_stream() -> None:
    with ScriptedOpenAI([Say("Hello."), Say("Hello again."), Call("f", {"x": 1})], models=("m1",)) as server:
        client = openai.OpenAI(base_url=server.url, api_key="k", max_retries=0)
        ask = [{"role": "user", "content": "Hi"}]
        whole = client.chat.completions.create(model="m1", messages=ask)
        assert whole.choices[0].message.content == "Hello."
        stream = client.chat.completions.create(
            model="m1", messages=ask, stream=True, stream_options={"include_usage": True}
        )
        chunks = list(stream)
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Hello again."
        assert chunks[-1].usage.prompt_tokens == 10
        called = client.chat.completions.create(model="m1", messages=ask)
        assert called.choices[0].message.tool_calls[0].function.arguments == '{"x": 1}'
        assert [model.id for model in client.models.list()] == ["m1"]
        assert [request.last_text for request in server.requests] == ["Hi", "Hi", "Hi"]
        client.close()


def test_anthropics_client_is_served_whole_and_in_a_stream() -> None:
    import anthropic  # takes long to load, and few need it

    used = Used(input=100, output=7, cache_read=60, cache_write=20)
    with ScriptedAnthropic([Say("Hello.", used=used), Call("f", {"x": 1})]) as server:
        client = anthropic.Anthropic(base_url=server.url, api_key="k", max_retries=0)
        ask = [{"role": "user", "content": "Hi"}]
        whole = client.messages.create(model="m", max_tokens=9, messages=ask)
        assert whole.content[0].text == "Hello."
        assert (whole.usage.input_tokens, whole.usage.cache_read_input_tokens) == (20, 60)
        with client.messages.stream(model="m", max_tokens=9, messages=ask) as stream:
            final = stream.get_final_message()
        assert final.content[0].input == {"x": 1}
        client.close()


def test_a_script_may_be_a_function_and_says_when_it_is_at_its_end() -> None:
    async def go() -> None:
        async with ScriptedOpenAI([lambda asked: Say(asked.last_text[::-1]), rate_limited(2)]) as server:
            client = openai.AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0)

            async def say(text: str) -> str | None:
                whole = await client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": text}]
                )
                return whole.choices[0].message.content

            assert await say("abc") == "cba"
            with pytest.raises(openai.RateLimitError) as limited:
                await say("x")
            assert limited.value.response.headers["retry-after"] == "2"
            with pytest.raises(openai.BadRequestError, match="the script ended after 2 turns"):
                await say("x")
            server.add(Say("more"))
            assert (server.left, await say("x"), server.left) == (1, "more", 0)
            await client.close()

    asyncio.run(go())


def test_a_script_that_fails_fails_the_test() -> None:
    def wrong(asked: Asked) -> Say:
        raise KeyError(asked.model)

    with pytest.raises(KeyError, match="m"), ScriptedOpenAI(wrong) as server:  # noqa: PT012
        client = openai.OpenAI(base_url=server.url, api_key="k", max_retries=0)
        with pytest.raises(openai.BadRequestError, match="the script failed"):
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}])
        client.close()


def test_errors_have_the_form_of_their_protocol() -> None:
    import anthropic  # takes long to load, and few need it

    with ScriptedAnthropic([too_long(9, 8), Fail(418, body="teapot")]) as server:
        client = anthropic.Anthropic(base_url=server.url, api_key="k", max_retries=0)
        ask = [{"role": "user", "content": "Hi"}]
        with pytest.raises(anthropic.BadRequestError, match="prompt is too long: 9 tokens > 8 maximum"):
            client.messages.create(model="m", max_tokens=9, messages=ask)
        with pytest.raises(anthropic.APIStatusError, match="teapot"):
            client.messages.create(model="m", max_tokens=9, messages=ask)
        client.close()
