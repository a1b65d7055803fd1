"""A home in which every audience has said its mark in everything that can hold words, and a gateway over it.

The model does what it is told (`CALL [[name, arguments], …]` at the end of a message) and says again
every mark that stands anywhere in its prompt: whatever it is shown, somebody hears.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx
import pytest
from channel_stage import SECRET, FarEnd, call, ended, far_end
from marks import CHANNEL, LIMITS, MARK, PEOPLE, REEF, SPACE_A, SPACE_B, TEAMS, Mark, Marks
from serving import Running, make_token, running, wait_for

from builders import PATIENCE, rows
from holdfast.agents.approvals import ApprovalRequest, allowlist, requests
from holdfast.agents.loop.asks import ASK, Terms
from holdfast.agents.loop.planning import caller_of
from holdfast.agents.tools.types import Caller
from holdfast.board import sharing
from holdfast.board.digests import enqueue as ask_for_digests
from holdfast.board.noise import CLASSIFIER_MARK
from holdfast.clock import ManualClock, parse_iso
from holdfast.context import ToolCall, ToolResult
from holdfast.gateway import tokens
from holdfast.gateway.tokens import Scope
from holdfast.log import (
    FOR_OWNER,
    OWNER,
    SYSTEM,
    NoteDraft,
    Tx,
    agenda,
    notes,
    sessions,
    turns,
)
from holdfast.people import Role, teams, users
from holdfast.runtime import Holdfast, open_home
from holdfast.testing import Asked, Call, Calls, Say, ScriptedOpenAI, Turn
from holdfast.testing.script import text_of

T = TypeVar("T")

NOW: Final = parse_iso("2026-03-02T09:00:00Z")
TODAY: Final = "2026-03-02"
MAIN, BETA = "agent:main:main", "agent:beta:main"
ADA, GIL = "agent:main:pier:dm:ada", "agent:main:pier:dm:gil"
ONE, TWO, DESK = (f"agent:main:pier:group:{name}" for name in ("g1", "g2", "desk"))
MEMBER, TEAM, OTHER = "agent:main:dm:usr-member", "agent:main:team:tide", "agent:beta:dm:usr-other"
# Whose pages these sessions are spoken in on.
SPEAKERS: Final = {MEMBER: "member", TEAM: "member", OTHER: "other member"}
CALLED: Final = re.compile(r"CALL (\[.*\])\s*$", re.DOTALL)


def parrot(asked: Asked) -> Turn:
    """A model that obeys, and says all that it was shown; only agent `beta` keeps to what it was just told,
    because whoever may read an agent may read what it says."""
    shown = json.dumps(asked.body, ensure_ascii=False)
    last = asked.messages[-1]
    words = text_of(last.get("content"))
    if "Agent: beta" in shown:
        shown = words
    seen = " ".join(sorted(set(MARK.findall(shown))))
    told = CALLED.search(words) if last.get("role") == "user" else None
    if told is not None and asked.tools:
        wanted = [Call(name, arguments) for name, arguments in json.loads(told[1])]
        return Calls(*wanted, text=f"I was shown: {seen}")
    return Say(f"I was shown: {seen}", chunks=1)


@dataclass
class World:
    gateway: Running
    model: ScriptedOpenAI
    end: FarEnd
    api: httpx.Client
    clock: ManualClock
    marks: Marks = field(default_factory=Marks)
    tokens: dict[str, str] = field(default_factory=dict)
    count: int = 0

    @property
    def hold(self) -> Holdfast:
        return self.gateway.hold

    def client(self, holder: str) -> httpx.Client:
        return self.gateway.client(self.tokens[holder])

    # -- what people do ---------------------------------------------------------------------------------

    @property
    def last_prompt(self) -> str:
        """Of a turn; what the board asks of the model beside turns is heard by nobody in a session."""
        asked = [json.dumps(one.body, ensure_ascii=False) for one in self.model.requests]
        return next(one for one in reversed(asked) if CLASSIFIER_MARK not in one)

    def let_in(self, key: str) -> None:
        """A stranger writes, and the owner lets them in as a guest."""
        assert self.say(key, "may I?")["state"] == "pairing"
        [(code,)] = self.rows("SELECT code FROM channel_pairings WHERE status = 'waiting'")
        self.hold.agency.channels.approve(code)

    def say(self, key: str, text: str, **fields: Any) -> dict[str, Any]:
        """Somebody writes in the chat of this session: its guest, Gil; in groups Ann; else the owner, Ada."""
        kind, peer = key.split(":")[3:5]
        who = "gil" if key == GIL else "ada" if kind == "dm" or peer.startswith("desk") else "ann"
        body = {"sender": {"id": who, "name": who.title()}, "peer": {"kind": kind, "id": peer}, **fields}
        self.count += 1
        told = call(self.gateway.url, {"id": f"m{self.count}", "text": text, **body}, channel=CHANNEL)
        assert told["httpStatus"] in (200, 202), told
        return ended(self.api, told["runId"]) if told.get("runId") else told

    def ask(self, key: str, text: str) -> dict[str, Any]:
        """The owner asks by the API; in a person's or a team's session, that person."""
        asked = {"sessionKey": key, "message": text}
        if key in SPEAKERS:
            with self.client(SPEAKERS[key]) as client:
                told = client.post("/api/agent", json=asked)
        else:
            told = self.api.post("/api/agent", json=asked)
        assert told.status_code == 202, told.text
        return ended(self.api, told.json()["runId"])

    def speak(self, key: str, text: str) -> dict[str, Any]:
        run = self.say(key, text) if f":{CHANNEL}:" in key else self.ask(key, text)
        assert run.get("status") == "committed", (key, run)
        return run

    def obey(self, key: str, *calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
        """Somebody has the agent call tools."""
        return self.speak(key, f"CALL {json.dumps(calls)}")

    def made(self, path: str, body: Mapping[str, Any], client: httpx.Client | None = None) -> dict[str, Any]:
        answer = (client or self.api).post(path, json=body)
        assert answer.status_code in (200, 201), answer.text
        found: dict[str, Any] = answer.json()
        return found

    # -- within -----------------------------------------------------------------------------------------

    def on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.gateway.loop).result(PATIENCE)

    def write(self, work: Callable[[Tx], T]) -> T:
        return self.hold.store.run(OWNER, work)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return rows(self.hold.store, sql)

    def ids(self, table: str, column: str = "id") -> list[str]:
        return [str(one) for (one,) in self.rows(f"SELECT DISTINCT {column} FROM {table}") if one]

    def settle(self, seconds: int = 0) -> None:
        """Time passes, and all that is due by then is done."""
        self.clock.advance(seconds=seconds)
        self.gateway.on_loop(self.hold.store.signals.notify_all)
        wait_for(lambda: not self._busy())

    def _busy(self) -> list[agenda.Item]:
        with self.hold.store.read(SYSTEM) as tx:
            live = [agenda.Status.QUEUED, agenda.Status.RUNNING]
            found = agenda.listing(tx, statuses=live, limit=500)
            return [one for one in found if one.due_at <= tx.now]

    def caller(self, key: str, **fields: Any) -> Caller:
        """In whose name tools run in a chat: the owner's; where others listen, the newest of theirs."""
        agency, config = self.hold.agency, self.hold.settings
        with self.hold.store.read(SYSTEM) as tx:
            session = sessions.find(tx, key)
            found = turns.listing(tx, session.id, limit=200)
        alone = session.audience == FOR_OWNER
        asked = ((one, Terms.read((one.meta or {}).get(ASK) or {}, session.agent_id or "")) for one in found)
        turn, terms = next(one for one in asked if (one[1].owner and one[1].limited_to is None) is alone)
        about = agency.models.about(agency.models.choice(config.agent(terms.agent_id))[0])
        made = caller_of(config, session, terms, self.hold.workspace(terms.agent_id), about)
        return replace(made, turn_id=turn.id, **fields)

    def use(self, caller: Caller, name: str, arguments: dict[str, Any]) -> ToolResult:
        self.count += 1
        calls = [ToolCall(f"call-{self.count}", name, arguments)]
        return self.on_loop(self.hold.agency.tools.run_all(caller, calls))[0]


@contextmanager
def marked_world(home: Path) -> Iterator[World]:
    with small_world(home) as world:
        world.tokens = {"owner": world.gateway.admin, "stranger": "hf_nobody-knows-this-token"}
        for plant in PLANTED:
            plant(world)
        yield world


@contextmanager
def small_world(home: Path, **channel: Any) -> Iterator[World]:
    """The same with nothing said yet: the owner, Ada, and whoever writes. `channel` are its settings."""
    marks, clock = Marks(), ManualClock(NOW)
    write_files(home, marks)
    with far_end() as end, ScriptedOpenAI(parrot) as model:
        (home / "holdfast.json").write_text(json.dumps(config(model.url, end.url, **channel)))
        with (
            open_home(home, clock=clock) as hold,
            running(hold) as gateway,
            gateway.client(gateway.admin) as api,
        ):
            yield World(gateway, model, end, api, clock, marks)


def config(model_url: str, end_url: str, **channel: Any) -> dict[str, Any]:
    """As open as a home can be, so that nothing but audiences keeps words apart."""
    model = {"id": "scripted", "contextWindow": 100_000, "input": ["text"]}
    provider = {"baseUrl": model_url, "apiKey": "key", "api": "openai-completions", "models": [model]}
    hook = {
        "url": end_url,
        "signingSecret": SECRET,
        "owners": ["ada"],
        "private": ["desk"],
        "groups": ["g1", "g2", "desk"],
        "requireMention": False,
        "streaming": "off",
        "opensThreads": True,
        "inboundPerMinute": 100_000,
        "outboundPerMinute": 100_000,
    }
    continuation = {"enabled": True, "crossSessionTargeting": "enabled", "maxChainLength": 1000}
    return {
        "board": {"contextMode": "patient", "classifier": {"model": None}, "digests": {"perCycle": 50}},
        # The engine that has tools: what they read back is among what is tried here.
        "plugins": {"slots": {"contextEngine": "lossless"}},
        "gateway": {"shutdownGraceSeconds": 1},
        "models": {"providers": {"scripted": provider}},
        "agents": {
            "defaults": {
                "model": "scripted/scripted",
                "userTimezone": "UTC",
                "skipBootstrap": True,
                "heartbeat": {"every": "0m"},
                "continuation": continuation,
                "subagents": {"allowAgents": ["*"], "maxSpawnDepth": 3, "maxChildrenPerAgent": 20},
            },
            "list": [{"id": "main", "default": True}, {"id": "beta"}],
        },
        "messages": {"queue": {"debounceMs": 0}},
        "channels": {CHANNEL: hook | channel},
        "tools": {
            "exec": {"security": "full", "ask": "off"},
            "agentToAgent": {"enabled": True, "allow": ["*"]},
            "loopDetection": {"enabled": False},
        },
        "memory": {
            "search": {
                "embedding": {"providers": []},
                "scope": {"default": "allow"},
                "paths": [{"path": "library", "name": "library"}],
            }
        },
        "hooks": {"enabled": True},
        "cron": {"maxConcurrentRuns": 50},
    }


def write_files(home: Path, marks: Marks) -> None:
    """What lies in the agents' folders is the owner's; AGENTS.md alone is instruction, for every chat."""
    for folder, own in ((home / "workspace", marks.owner), (home / "workspace-beta", marks.beta)):
        names = ["MEMORY.md", "USER.md", "SOUL.md", "IDENTITY.md", "TOOLS.md", "HEARTBEAT.md"]
        names += [f"memory/{TODAY}.md", "memory/lasting.md", "library/book.md", "notes/plan.md"]
        for name in names:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"# {name}\n\nIn {name}, {own.text}.\n")
        (folder / "AGENTS.md").write_text("Answer in one line.\n")
        skill = folder / "skills" / "sauna"
        skill.mkdir(parents=True)
        head = f"---\nname: sauna\ndescription: How the sauna is heated, {own.text}\n---\n"
        (skill / "SKILL.md").write_text(f"{head}\nIn the skill, {own.text}.\n")
        (skill / "more.md").write_text(f"Beside the skill, {own.text}.\n")


SPOKEN: Final = {
    ADA: "owner",
    DESK: "desk",
    GIL: "guest",
    ONE: "one",
    TWO: "two",
    MAIN: "owner",
    BETA: "beta",
    MEMBER: "member",
    TEAM: "team",
    OTHER: "other",
}


def mark_in(world: World, key: str) -> Mark:
    found: Mark = getattr(world.marks, SPOKEN[key])
    return found


def _plant_people(world: World) -> None:
    """One person of each role, in two teams, each with a token of their own; ids are known by their login."""

    def write(tx: Tx) -> None:
        for team, agent in TEAMS.items():
            teams.add(tx, team, agents=[agent])
        for name, (login, role, of_team) in PEOPLE.items():
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(users, "uuid7", lambda login=login: login)
                made = users.add(tx, login, role=Role(role))
            if of_team is not None:
                teams.join(tx, of_team, made)
            world.tokens[name] = tokens.add(tx, f"of {login}", user=made, scope=Scope.ADMIN)[1]

    world.write(write)
    for team, own in (("tide", world.marks.team), ("reef", world.marks.reef)):
        path = world.hold.home.team_workspace(team) / "plans" / "shared.md"
        path.parent.mkdir(parents=True)
        path.write_text(f"In the team's file, {own.text}.\n")


def _plant_board(world: World) -> None:
    """Spaces, of which A may look into B and not the other way; topics, tasks, words, files, drafts."""
    for name in ("A", "B"):
        world.made("/api/spaces", {"name": name})
    for here, edges in ((SPACE_A, {SPACE_B: True}), (SPACE_B, {SPACE_A: False})):
        answer = world.api.patch(f"/api/spaces/{here}/connectivity", json={"connectivity": edges})
        assert answer.status_code == 200, answer.text
    for name, limits in LIMITS.items():
        scope = Scope.READ if name == "unlimited" else Scope.WRITE
        world.tokens[name] = make_token(world.hold.store, name, scope, **limits)
    world.write(lambda tx: sharing.mark_shared(tx, frozenset((SPACE_A, SPACE_B))))
    places: list[tuple[Mark, dict[str, str]]] = [
        (world.marks.owner, {}),
        (world.marks.space_a, {"spaceId": SPACE_A}),
        (world.marks.space_b, {"spaceId": SPACE_B}),
        (world.marks.reef, {"spaceId": REEF}),
    ]
    for own, place in places:
        about = {"description": own.text, **place}
        topic = world.made("/api/topics", {"name": f"Sauna {own.word}", "digest": own.text, **about})["id"]
        task = {"title": f"Heat it {own.word}", "topicId": topic, "digest": own.text, **about}
        of_task = world.made("/api/tasks", task)["id"]
        files = [("files", (f"{own.word}.txt", own.text.encode(), "text/plain"))]
        file = world.api.post("/api/attachments", files=files, params=place).json()[0]["id"]
        for number in range(4):
            said = {"content": f"On day {number}, {own.text} for the sauna.", "agentId": "user", **place}
            said |= {"topicId": topic, "raw": own.text, "summary": own.text, "attachmentIds": [file]}
            entry = world.made("/api/log", said)
            said |= {"taskId": of_task, "content": f"A task's word: {own.text}.", "type": "action"}
            world.made("/api/log", {name: said[name] for name in said if name != "attachmentIds"})
        note = {"content": f"Remember that {own.text}", "type": "note", "relatedLogId": entry["id"], **place}
        world.made("/api/log", note | {"topicId": topic})
    of_beta = {"content": f"Beta says in A that {world.marks.beta_in_a.text}", "agentId": "beta"}
    world.made("/api/log", of_beta | {"spaceId": SPACE_A})
    world.made("/api/drafts", {"key": "chat", "value": f"half a sentence: {world.marks.owner.text}"})


def _plant_chats(world: World) -> None:
    """Everybody talks; the guest is let in first."""
    world.let_in(GIL)
    for key in SPOKEN:
        own = mark_in(world, key)
        world.speak(key, f"Remember about the sauna that {own.text}")
        world.speak(key, f"What do you know of the sauna and the {own.hook}?")


def _plant_work(world: World) -> None:
    """What agents do and leave behind: outputs, children, standing tasks, notes, what is to come."""
    for key in SPOKEN:
        own = mark_in(world, key)
        mine = world.rows(f"SELECT id FROM entries WHERE session_key = '{key}' AND role = 'user'")[0][0]
        alone = key in (MAIN, BETA)
        output = {"command": f"for i in $(seq 4000); do echo {own.word} $i; done"}
        world.obey(
            key,
            ("sessions_spawn", {"task": f"Look into it: {own.text}", "label": f"child {own.word}"}),
            ("cron_create", {"prompt": f"Tell that {own.text}", "name": own.word, "every": "5h"}),
            ("clawboard_create_note", {"relatedLogId": mine, "text": f"A note: {own.text}"}),
            *([("exec", output)] if alone else []),
            *([("memory_write", {"text": f"Kept for later: {own.text}"})] if alone else []),
        )
    world.settle(1)
    for id_ in world.ids("standing_tasks"):
        assert world.api.post(f"/api/cron/{id_}/run").status_code in (200, 202)
    world.settle(1)


def _plant_records(world: World) -> None:
    """What no chat writes by itself: approvals, patterns, labels, notes, what a session is about."""
    topics = dict(world.rows("SELECT audience, id FROM topics WHERE created_by = 'user'"))

    def write(tx: Tx) -> None:
        for key in SPOKEN:
            own, agent = mark_in(world, key), key.split(":")[1]
            session = sessions.find(tx, key)
            sessions.update(tx, session, label=f"label {own.word}")
            asked = ApprovalRequest(
                agent_id=agent,
                tool="exec",
                command=f"echo {own.text}",
                arguments={"command": f"echo {own.text}"},
                reason=own.text,
                session_key=key,
            )
            requests.request(tx, asked, lasts_ms=10**9)
            waits = NoteDraft(
                key=f"planted:{key}",
                session_key=key,
                audience=own.audience,
                kind="planted",
                text=own.text,
                trust="tool",
                source="test",
            )
            notes.post(tx, waits)
        for agent, own in (("main", world.marks.owner), ("beta", world.marks.beta)):
            allowlist.allow(tx, agent, f"echo {own.word}", by="owner")

    world.write(write)
    about = {"sessionKey": MAIN, "topicId": topics[FOR_OWNER], "anchor": world.marks.owner.text}
    world.made("/api/classifier/session-routing", about)


def _plant_summaries(world: World) -> None:
    """Sorting, digests, compaction, the index."""
    world.settle(60)
    world.write(lambda tx: ask_for_digests(tx, due_at=int(tx.now)))
    world.settle(60)
    for key in SPOKEN:
        session = world.write(lambda tx, key=key: sessions.find(tx, key))
        world.on_loop(world.hold.context.compact(session, window=100_000, reason="manual", force=True))
        world.speak(key, f"And what of {mark_in(world, key).hook} now?")
    for agent in ("main", "beta"):
        world.hold.memory.update(agent)
    world.settle(60)


def _plant_to_come(world: World) -> None:
    """What an agent means to do later; anything said after it would call it off."""
    for key in SPOKEN:
        own = mark_in(world, key)
        world.obey(
            key,
            ("continue_work", {"reason": f"Go on: {own.text}", "delaySeconds": 250}),
            ("continue_delegate", {"task": f"Later: {own.text}", "delaySeconds": 250}),
        )
    world.settle()


PLANTED: Final = (
    _plant_people,
    _plant_board,
    _plant_chats,
    _plant_work,
    _plant_records,
    _plant_summaries,
    _plant_to_come,
)
