"""`docs/privacy.md` says who can read and do what; each cell of its tables is tried on a running gateway."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from marked_world import BETA, DESK, GIL, MAIN, ONE, TWO, World, mark_in
from marks import SPACE_A, SPACE_B, Mark

PAGE = Path(__file__).parents[2] / "docs" / "privacy.md"
CHATS = {
    "you: main, direct chats, terminal, pages": MAIN,
    "a group that you declared private": DESK,
    "a guest in a direct chat": GIL,
    "a group or channel": ONE,
    "a stranger who was not let in": "agent:main:pier:dm:mallory",
}
TOKENS = {
    "the home's own, or one without limits": "owner",
    "limited to a space (`--space`)": "space A",
    "limited to an agent (`--agent`)": "beta",
    "limited to both": "beta in A",
    "none, or a wrong one": "stranger",
}


def cells(first: str) -> Iterator[tuple[str, str, bool]]:
    """Row, column and what the page says, of the table whose first heading this is."""
    lines = PAGE.read_text().splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith(f"| {first} |"))
    heads = [cell.strip() for cell in lines[at].strip("|").split("|")]
    for line in lines[at + 2 :]:
        if not line.startswith("|"):
            return
        row = [cell.strip() for cell in line.strip("|").split("|")]
        assert len(row) == len(heads), line
        for head, cell in zip(heads[1:], row[1:], strict=True):
            assert cell in ("yes", "no"), line
            yield row[0], head, cell == "yes"


class Chat:
    """What somebody gets in a chat, tried by the tools that the agent has there and by its prompts."""

    def __init__(self, world: World, key: str) -> None:
        self.world, self.key = world, key

    def columns(self) -> dict[str, Callable[[], bool]]:
        elsewhere = self.world.marks.owner if self.key != MAIN else self.world.marks.desk
        other = self.world.marks.two
        return {
            "what was said there": lambda: self._finds(mark_in(self.world, self.key)),
            "your words elsewhere": lambda: self._finds(elsewhere),
            "what other chats said": lambda: self._finds(other),
            "`MEMORY.md`, daily notes": self._memory,
            "`SOUL.md`, `IDENTITY.md`, `TOOLS.md`": lambda: "# SOUL.md" in self._prompt(),
            "skills": lambda: self._may("skill_read", name="sauna"),
            "files and commands": self._files,
            "standing tasks of their own": self._task,
            "sending to other chats": self._send,
        }

    def _may(self, tool: str, **arguments: object) -> bool:
        return not self.world.use(self.world.caller(self.key), tool, arguments).is_error

    def _finds(self, mark: Mark) -> bool:
        caller = self.world.caller(self.key)
        return mark.word in self.world.use(caller, "clawboard_search", {"q": mark.hook}).text

    def _prompt(self) -> str:
        wanted = f"Session: {self.key}\n"
        return next(
            system
            for asked in reversed(self.world.model.requests)
            if wanted in (system := str(asked.messages[0].get("content")))
        )

    def _memory(self) -> bool:
        shown = "# MEMORY.md" in self._prompt()
        read = {self._may("memory_get", path=path) for path in ("MEMORY.md", "memory/lasting.md")}
        assert read == {shown}
        return shown

    def _files(self) -> bool:
        tried = {
            self._may("file_read", path="notes/plan.md"),
            self._may("file_write", path="notes/new.md", content="x"),
            self._may("exec", command="echo hello"),
        }
        assert len(tried) == 1
        return tried.pop()

    def _task(self) -> bool:
        return self._may("cron_create", prompt="Say hello", every="9h", deliver="none")

    def _send(self) -> bool:
        return self._may("message", target="pier:group:g2", text="Hello")


@pytest.mark.parametrize("who", CHATS)
def test_what_the_page_says_of_chats_is_so(world: World, who: str) -> None:
    said = {column: yes for row, column, yes in cells("who") if row == who}
    if "stranger" in who:
        told = world.say(CHATS[who], "Hello?", sender={"id": "mallory", "name": "Mallory"})
        assert told["state"] == "pairing"
        assert not world.rows(f"SELECT id FROM sessions WHERE key = '{CHATS[who]}'")
        assert set(said.values()) == {False}
        return
    tried = Chat(world, CHATS[who]).columns()
    assert {column: try_() for column, try_ in tried.items()} == said


def token_columns(world: World, client: httpx.Client) -> dict[str, Callable[[], bool]]:
    marks = world.marks

    def reads(word: str) -> bool:
        """However much other tests have written in this world meanwhile."""
        asked: dict[str, str | int] = {"limit": 1000}
        while True:
            page = client.get("/api/log", params=asked)
            if word in page.text:
                return True
            if "X-Next-Cursor" not in page.headers:
                return False
            asked["cursor"] = page.headers["X-Next-Cursor"]

    def asks() -> bool:
        sent = {"agentId": "beta", "sessionKey": BETA, "message": "Hello"}
        return client.post("/api/agent", json=sent).status_code == 202

    def allowed(answer: httpx.Response) -> bool:
        return answer.status_code not in (401, 403)

    edges = {"connectivity": {SPACE_B: True}}
    share = {"entryId": "log-that-is-not-there", "audience": "anyone"}
    memory = {"agentId": "beta", "path": "MEMORY.md"}
    return {
        "what is shared with its space": lambda: reads(marks.space_a.word),
        "your talk with its agent": lambda: reads(marks.beta.word),
        "all other words": lambda: reads(marks.owner.word) or reads(marks.one.word),
        "its agent's memory files": lambda: client.get("/api/memory/get", params=memory).status_code == 200,
        "asking its agent": asks,
        "connecting spaces": lambda: allowed(client.patch(f"/api/spaces/{SPACE_A}/connectivity", json=edges)),
        "sharing": lambda: allowed(client.post("/api/share", json=share)),
    }


@pytest.mark.parametrize("who", TOKENS)
def test_what_the_page_says_of_tokens_is_so(world: World, who: str) -> None:
    said = {column: yes for row, column, yes in cells("token") if row == who}
    with world.client(TOKENS[who]) as client:
        assert {column: try_() for column, try_ in token_columns(world, client).items()} == said


def test_the_page_and_the_tests_know_the_same_people() -> None:
    assert {row for row, _, _ in cells("who")} == CHATS.keys()
    assert {row for row, _, _ in cells("token")} == TOKENS.keys()


def test_the_page_is_linked_where_people_look() -> None:
    root = PAGE.parents[1]
    assert "docs/privacy.md" in (root / "README.md").read_text()
    assert "privacy.md" in (root / "docs" / "architecture.md").read_text()


def test_another_group_reads_the_same_row(world: World) -> None:
    tried = Chat(world, TWO).columns()
    assert tried["what was said there"]()
    assert not tried["your words elsewhere"]()
