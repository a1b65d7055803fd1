"""Hooks of coding agents, run as their hosts run them: a process for each event, JSON on its stdin."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from serving import Running, running, wait_for

from builders import PATIENCE
from holdfast.cli.client import announced
from holdfast.cli.root import cli
from holdfast.coding_agents import connect, hook
from holdfast.home import Home
from holdfast.runtime import open_home

CWD = "/work/boat house"
KEY = "claude-code:boat-house|thread:s1"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with (
        open_home(tmp_path_factory.mktemp("hooks")) as hold,
        running(hold) as found,
        announced(hold.home, found.url),
    ):
        yield found


@pytest.fixture(scope="module")
def api(gateway: Running) -> Iterator[httpx.Client]:
    with gateway.client(gateway.admin) as client:
        yield client


def fired(home: Home, event: str, host: str = "claude-code", session: str = "s1", **more: Any) -> str:
    """What a hook says to its host; it ends with 0 in any case, and says nothing that is no answer."""
    sent = {"hook_event_name": event, "session_id": session, "cwd": CWD, **more}
    done = subprocess.run(
        connect.command(host, home),
        shell=True,
        input=json.dumps(sent).encode(),
        capture_output=True,
        timeout=PATIENCE,
        check=False,
        env={"PATH": os.environ["PATH"]},
    )
    assert done.returncode == 0
    assert done.stderr == b""
    if not done.stdout:
        return ""
    answer = json.loads(done.stdout)
    assert answer.keys() == {"hookSpecificOutput"}
    assert answer["hookSpecificOutput"]["hookEventName"] == event
    return str(answer["hookSpecificOutput"]["additionalContext"])


def logged(api: httpx.Client, key: str, count: int) -> list[tuple[str, str, str]]:
    """Who said what under a key, oldest first, once so many are there."""
    rows: list[dict[str, Any]] = []

    def there() -> bool:
        rows[:] = api.get("/api/log", params={"sessionKey": key, "limit": 100}).json()
        return len(rows) >= count

    wait_for(there)
    return [(row["agentId"], row["type"], row["content"]) for row in rows[::-1]]


def left(home: Home) -> list[Path]:
    return sorted((home.path / hook.HOOKS / "spool").glob("*.json"))


@contextmanager
def down(home: Home) -> Iterator[None]:
    """As after the gateway was killed: its word of where it listens is still there, and nobody listens."""
    path = home.path / "gateway.json"
    word = path.read_text() if path.exists() else None
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    path.write_text(json.dumps({"url": f"http://127.0.0.1:{port}", "pid": 1}))
    try:
        yield
    finally:
        path.unlink()
        if word is not None:
            path.write_text(word)


def test_a_session_is_logged_word_for_word_prompts_answers_and_tool_calls(
    gateway: Running, api: httpx.Client
) -> None:
    home = gateway.hold.home
    fired(home, "UserPromptSubmit", prompt="Caulk the seams, please", prompt_id="p1")
    fired(home, "PostToolUse", tool_name="Bash", tool_input={"command": "ls seams"}, tool_use_id="t1")
    fired(
        home, "Stop", last_assistant_message="All seams are caulked.", prompt_id="p1", stop_hook_active=False
    )
    found = logged(api, KEY, 3)
    assert found == [
        ("user", "conversation", "Caulk the seams, please"),
        ("claude-code", "action", "Bash: ls seams"),
        ("claude-code", "conversation", "All seams are caulked."),
    ]


def test_the_same_event_twice_is_one_entry_and_the_same_words_in_another_turn_are_two(
    gateway: Running, api: httpx.Client
) -> None:
    home, key = gateway.hold.home, KEY.replace("s1", "twice")
    for prompt_id in ("p1", "p1", "p2"):
        fired(home, "UserPromptSubmit", session="twice", prompt="go on with it", prompt_id=prompt_id)
    fired(home, "Stop", session="twice", last_assistant_message="Done.", prompt_id="p2")
    assert [text for _, _, text in logged(api, key, 3)] == ["go on with it", "go on with it", "Done."]


def test_a_prompt_is_never_blocked_and_nothing_is_lost_while_the_gateway_is_down(
    gateway: Running, api: httpx.Client
) -> None:
    home, key = gateway.hold.home, KEY.replace("s1", "down")
    with down(home):
        for number in range(3):
            prompt = {"prompt": f"Prompt {number} while it is down", "prompt_id": str(number)}
            assert fired(home, "UserPromptSubmit", session="down", **prompt) == ""
        assert len(left(home)) == 3
        assert all(path.stat().st_mode & 0o077 == 0 for path in left(home))
    fired(home, "SessionEnd", session="another", reason="other")
    assert [text for _, _, text in logged(api, key, 3)] == [
        f"Prompt {number} while it is down" for number in range(3)
    ]
    assert left(home) == []


def test_what_waits_is_written_once_though_it_is_delivered_twice(gateway: Running, api: httpx.Client) -> None:
    home, key = gateway.hold.home, KEY.replace("s1", "redelivered")
    with down(home):
        fired(home, "UserPromptSubmit", session="redelivered", prompt="Only once, please")
    (kept,) = left(home)
    text = kept.read_text()
    fired(home, "SessionEnd", session="x")
    kept.write_text(text)  # as after a hook that was killed between the delivery and its end
    fired(home, "SessionEnd", session="x")
    fired(home, "Stop", session="redelivered", last_assistant_message="Once.")
    assert [said for _, _, said in logged(api, key, 2)] == ["Only once, please", "Once."]


def test_what_the_gateway_will_never_take_does_not_hold_up_or_lose_the_rest(
    gateway: Running, api: httpx.Client
) -> None:
    home, key = gateway.hold.home, KEY.replace("s1", "poison")
    with down(home):
        fired(home, "UserPromptSubmit", session="poison", prompt="Said before the poison")
        bad = left(home)[0].with_name("99-bad.json")
        fired(home, "UserPromptSubmit", session="poison", prompt="Said after the poison")
        bad.write_text(json.dumps([{"content": 5}]))
        bad.with_name("98-torn.json").write_text("[{")
    for _ in range(2):
        fired(home, "SessionEnd", session="x")
    assert [said for _, _, said in logged(api, key, 2)] == ["Said before the poison", "Said after the poison"]
    assert left(home) == []
    assert len(list(bad.parent.glob("*.refused"))) == 2


def test_a_gateway_takes_in_what_waits_when_it_starts(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with open_home(tmp_path):
        pass
    fired(home, "UserPromptSubmit", prompt="Said before any gateway ran", prompt_id="p")
    assert len(left(home)) == 1
    with open_home(tmp_path) as hold, running(hold) as gateway, gateway.client(gateway.admin) as client:
        assert [said for _, _, said in logged(client, KEY, 1)] == ["Said before any gateway ran"]
        wait_for(lambda: left(home) == [])


def test_a_gateway_that_accepts_and_never_answers_costs_a_prompt_no_more_than_its_limit(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path)
    home.prepare()
    home.admin_token()
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        (tmp_path / "gateway.json").write_text(
            json.dumps({"url": f"http://127.0.0.1:{deaf.getsockname()[1]}", "pid": os.getpid()})
        )
        assert fired(home, "UserPromptSubmit", prompt="Is anybody there at all?") == ""
        assert fired(home, "Stop", last_assistant_message="Nobody.") == ""
    assert len(left(home)) == 2


def test_a_gateway_that_answers_a_byte_at_a_time_is_given_up(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.prepare()
    home.admin_token()
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as slow:
        (tmp_path / "gateway.json").write_text(
            json.dumps({"url": f"http://127.0.0.1:{slow.getsockname()[1]}", "pid": os.getpid()})
        )

        def trickle() -> None:
            peer, _ = slow.accept()
            with peer:
                while not over.wait(0.05):
                    try:
                        peer.sendall(b"H")
                    except OSError:
                        return

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            assert fired(home, "Stop", last_assistant_message="Slowly.") == ""
        finally:
            over.set()
            thread.join(PATIENCE)
    assert len(left(home)) == 1


def test_nothing_that_a_host_sends_makes_a_hook_fail(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    line = shlex.split(connect.command("claude-code", home))
    events = [b"", b"{", b"[]", b"null", b'{"hook_event_name": 5, "prompt": {"a": []}}', b"\xff\xfe"]
    events += [json.dumps({"hook_event_name": "Stop", "last_assistant_message": "\ud800"}).encode()]
    for sent in events:
        done = subprocess.run(line, input=sent, capture_output=True, timeout=PATIENCE, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), sent
    (tmp_path / "file").write_text("not a folder")
    broken = shlex.split(connect.command("claude-code", Home(tmp_path / "file")))
    done = subprocess.run(broken, input=b"{}", capture_output=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_host_that_holdfast_was_taken_from_is_not_blocked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "HOOK", tmp_path / "coding_agents" / "hook.py")
    line = connect.command("claude-code", Home(tmp_path))
    done = subprocess.run(line, shell=True, input=b"{}", capture_output=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (0, b"")
    taken_out = connect.without_hooks(connect.with_hooks({}, "claude-code", line))
    assert taken_out == {}


def test_a_stop_is_never_answered_so_that_no_turn_goes_round_in_circles(gateway: Running) -> None:
    for active in (False, True):
        for text in ("The end.", ""):
            more = {"stop_hook_active": active, "last_assistant_message": text}
            assert fired(gateway.hold.home, "Stop", session="loop", **more) == ""


def test_a_hook_starts_no_process_and_leaves_none(gateway: Running, tmp_path: Path) -> None:
    """Whatever a hook starts would share its session: of that nothing is left when it has ended."""
    code = (
        "import os, runpy, sys\n"
        "def refuse(*a, **k): os.write(2, b'a process was started')\n"
        "sys.addaudithook(lambda name, args: refuse() if name in"
        " ('os.fork', 'os.posix_spawn', 'subprocess.Popen', 'os.system', 'os.exec') else None)\n"
        f"sys.argv = [{str(connect.HOOK)!r}, 'claude-code', {str(gateway.hold.home.path)!r}]\n"
        f"runpy.run_path({str(connect.HOOK)!r}, run_name='__main__')\n"
    )
    line = shlex.split(connect.command("claude-code", gateway.hold.home))[:3]
    for event in ("SessionStart", "UserPromptSubmit", "PostToolUse", "Stop", "SessionEnd"):
        sent = json.dumps({"hook_event_name": event, "session_id": "p", "prompt": "what is running here?"})
        done = subprocess.run(
            [*line, "-c", code], input=sent.encode(), capture_output=True, timeout=PATIENCE, check=False
        )
        assert (done.returncode, done.stderr) == (0, b""), event


@pytest.mark.parametrize("source", ["startup", "resume", "clear", "compact"])
def test_a_session_begins_with_the_block_however_it_begins(
    gateway: Running, api: httpx.Client, source: str
) -> None:
    home = gateway.hold.home
    fired(home, "UserPromptSubmit", session="first", prompt="We stopped at the rudder", prompt_id="r")
    logged(api, KEY.replace("s1", "first"), 1)
    session = "first" if source in ("resume", "compact") else f"after-{source}"
    block = fired(home, "SessionStart", session=session, source=source)
    assert "We stopped at the rudder" in block
    assert len(block) <= hook.START_CHARS


def test_what_a_session_was_given_is_not_put_into_it_again_until_it_was_compacted(
    gateway: Running, api: httpx.Client
) -> None:
    home = gateway.hold.home
    body = {"type": "note", "content": "The mast M7Q4 is of spruce from the north wood", "agentId": "main"}
    assert api.post("/api/log", json=body).status_code == 201
    ask = {"session": "again", "prompt": "which spruce is the mast M7Q4 made of, from which wood?"}
    numbers = itertools.count()

    def is_given() -> bool:
        return "north wood" in fired(home, "UserPromptSubmit", prompt_id=str(next(numbers)), **ask)

    wait_for(is_given)  # a hook waits for no more than a moment: what comes too late is there for the next
    assert not any(is_given() for _ in range(4))
    fired(home, "SessionStart", session="again", source="compact")
    wait_for(is_given)


def test_what_a_session_is_given_in_all_is_bounded(tmp_path: Path) -> None:
    state = hook.State(tmp_path, "claude-code", "s")
    total = 0
    for number in range(200):
        again = hook.State(tmp_path, "claude-code", "s")
        if again.chars >= hook.SESSION_CHARS:
            break
        text = "\n".join(f"- line {number}.{n} {'word ' * 20}" for n in range(12))[: hook.PROMPT_CHARS]
        total += len(again.fresh(f"Title:\n{text}", whole=False))
    assert total < hook.SESSION_CHARS + hook.PROMPT_CHARS + 100
    assert state.chars == 0


def test_what_was_read_by_our_own_tools_is_not_logged_again(gateway: Running, api: httpx.Client) -> None:
    home, key = gateway.hold.home, KEY.replace("s1", "own")
    fired(home, "PostToolUse", session="own", tool_name="mcp__holdfast__recall", tool_use_id="r1")
    fired(home, "Stop", session="own", last_assistant_message="I looked it up.")
    assert logged(api, key, 1) == [("claude-code", "conversation", "I looked it up.")]


def test_codex_is_logged_by_its_turns(gateway: Running, api: httpx.Client) -> None:
    home, key = gateway.hold.home, "codex:boat-house|thread:c1"
    for _ in range(2):
        fired(home, "UserPromptSubmit", "codex", "c1", prompt="Tar the hull of the boat", turn_id="7")
    fired(home, "Stop", "codex", "c1", last_assistant_message="Tarred.", turn_id="7")
    assert [text for _, _, text in logged(api, key, 2)] == ["Tar the hull of the boat", "Tarred."]


OTHERS = {
    "model": "opus",
    "hooks": {
        "Stop": [{"hooks": [{"type": "command", "command": "say done"}]}],
        "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "check"}]}],
    },
}


@pytest.mark.parametrize("host", ["claude-code", "codex"])
def test_connecting_keeps_what_others_set_and_can_be_undone(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / connect.SETTINGS[host]
    path.parent.mkdir()
    path.write_text(json.dumps(OTHERS))
    home = ["--home", str(tmp_path / "home")]
    run = CliRunner()
    for _ in range(2):
        done = run.invoke(cli, ["connect", host, "--json", *home], catch_exceptions=False)
        assert done.exit_code == 0
        told = json.loads(done.output)
        assert (told["ok"], told["error"]) == (True, None)
    settings = json.loads(path.read_text())
    assert settings["model"] == "opus"
    assert settings["hooks"]["PreToolUse"] == OTHERS["hooks"]["PreToolUse"]  # type: ignore[index]
    assert len(settings["hooks"]["Stop"]) == 2
    assert settings["hooks"].keys() >= {"SessionStart", "UserPromptSubmit", "PostToolUse", "Stop"}
    assert "matcher" not in settings["hooks"]["SessionStart"][0]
    # In print mode the program ends with its answer, and whatever it does not wait for ends with it.
    assert not any("async" in one for group in settings["hooks"]["Stop"] for one in group["hooks"])
    assert Home(tmp_path / "home").kept_secret(hook.TOKEN)
    assert run.invoke(cli, ["connect", host, "--remove", *home]).exit_code == 0
    assert json.loads(path.read_text()) == OTHERS


def test_settings_that_cannot_be_read_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / ".claude" / "settings.json"
    path.parent.mkdir()
    path.write_text("{ not json")
    done = CliRunner().invoke(cli, ["connect", "claude-code", "--home", str(tmp_path / "home")])
    assert done.exit_code == 2
    assert path.read_text() == "{ not json"


def test_the_hook_needs_nothing_but_the_standard_library() -> None:
    code = f"import runpy, sys; runpy.run_path({str(connect.HOOK)!r}); print(*sys.modules)"
    line = shlex.split(connect.command("claude-code", Home(Path("/nowhere"))))[:3]
    done = subprocess.run([*line, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert not [
        name for name in done.stdout.split() if name.partition(".")[0] in ("holdfast", "httpx", "click")
    ]
