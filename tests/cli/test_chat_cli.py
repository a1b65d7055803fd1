"""`holdfast chat`: through pipes, through a gateway, at a terminal; and the parts it is made of."""

from __future__ import annotations

import stat
import threading
from pathlib import Path
from typing import Any

from cli_stage import Run
from hypothesis import given
from hypothesis import strategies as st
from talk_builders import PATIENCE_SECONDS, Pty, Scripted, gateway, scripted

from holdfast.cli.chat.events import Again, End, NeedsApproval, Reading, Tool, Words
from holdfast.cli.chat.plain import History
from holdfast.cli.chat.screen import finished
from holdfast.cli.chat.terminal import TypedLine
from holdfast.cli.output import exact, safe
from holdfast.testing import Asked, Call, Say, Stall, Turn, unauthorised

__all__ = ["scripted"]


def test_through_a_pipe_each_line_is_answered_in_its_turn(run: Run, scripted: Scripted) -> None:
    server = scripted([Say("First answer."), Say("Second answer.")])
    lines = "one\n\nsecond \\\nwith more\n/help\n/exit\nnever said\n"
    result = run("chat", "--session", "work", input=lines)
    assert result.exit_code == 0, result.stderr
    first, second, *commands = result.stdout.splitlines()
    assert (first, second) == ("First answer.", "Second answer.")
    assert any(line.startswith("/status — ") for line in commands)
    assert commands[-1] == "/exit — Leave."
    assert server.requests[1].last_text.endswith("second \nwith more")
    assert len(server.requests) == 2
    assert result.stderr.splitlines()[0] == "agent main · session work · model scripted/m · in this process"


def test_approvals_are_answered_by_the_next_line_and_by_no_if_that_is_no_answer(
    run: Run, home: Path, scripted: Scripted
) -> None:
    server = scripted(
        [
            Call("exec", {"command": "echo 1 > one"}),
            Say("One is there."),
            Call("exec", {"command": "echo 2 > two"}),
            Say("Two is not."),
            Say("Three."),
            unauthorised(),
        ]
    )
    result = run("chat", input="make one\ny\nmake two\nwhat about three?\nand four?\n")
    assert result.stdout.splitlines() == ["One is there.", "Two is not.", "Three."]
    assert result.exit_code == 1
    assert "error: scripted/m: 401" in result.stderr
    assert [path.name for path in (home / "workspace").iterdir() if path.is_file()] == ["one"]
    assert server.requests[4].last_text.endswith("what about three?")


def test_through_a_gateway_approvals_and_commands_work_too(run: Run, home: Path, scripted: Scripted) -> None:
    two = Call("exec", {"command": "touch two > three"})
    scripted([Call("exec", {"command": "touch one"}), Say("Done."), two, Say("Again.")])
    with gateway(home) as url:
        result = run("chat", input="make one\nalways\nmake two\nalways\ny\n/model scripted/other\n")
    assert result.stdout.splitlines()[:2] == ["Done.", "Again."], result.stderr
    assert "this command is no pattern by itself. Answer y or n" in result.stderr
    assert "Model: scripted/other" in result.stdout
    assert f"model scripted/m · through {url}" in result.stderr
    assert (home / "workspace/two").exists()
    assert "touch one" in run("approvals", "list", "--allowed").stdout


class Model:
    """Answers as the words ask for; the slow one not before it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.asked = threading.Event()
        self.seen: list[str] = []

    def __call__(self, asked: Asked) -> Turn:
        self.seen.append(asked.last_text)
        if asked.messages[-1]["role"] == "tool":
            return Say("It is **made**.")
        if "wren" in asked.last_text:
            return Say("Both, then.")
        if "slow" in asked.last_text:
            self.asked.set()
            assert self.go.wait(PATIENCE_SECONDS)
            return Say("Only the heron.")
        if "stall" in asked.last_text:
            return Stall("and then")
        if "make" in asked.last_text:
            return Call("exec", {"command": "echo made > one"})
        return Say("# Birds\n\nThe *heron*:\n\n- eats eels\n- stands still\n", chunks=7)


def test_at_a_terminal_one_talks_approves_steers_stops_and_leaves(home: Path, scripted: Scripted) -> None:
    model = Model()
    scripted(model)
    screen = Pty("--home", home, "chat")
    assert "agent main · session agent:main:main" in screen.expect("Ctrl-D leaves")

    screen.expect("› ")
    screen.type("tell me\r")
    reply = screen.expect("scripted/m · 10 in, 5 out")
    assert "Birds\n" in reply
    assert " • eats eels\n" in reply
    assert "**" not in reply

    screen.expect("› ")
    screen.type("make it\r")
    asked = screen.expect("Let it run? y once, n no, a always")
    assert "    echo made > one\n" in asked
    screen.type("perhaps\r")
    screen.expect("Answer y, n or a first")
    screen.type("y\r")
    screen.expect("approved")
    screen.expect("It is made.")

    screen.expect("› ")
    screen.type("slow please\r")
    assert model.asked.wait(PATIENCE_SECONDS)
    screen.type("and the wrem\x7fn?\r")
    screen.expect("› and the wren?\n")
    model.go.set()
    screen.expect("Both, then.")
    assert any(text.endswith("and the wren?") for text in model.seen)

    screen.expect("› ")
    screen.type("stall\r")
    screen.expect("and then")
    screen.type("\x03")
    screen.expect("stopped")
    screen.expect("› ")
    screen.type("\x04")
    assert screen.end() == 0
    assert (home / "workspace/one").read_text() == "made\n"
    kept = home / "chat_history"
    assert kept.read_text().splitlines() == ["tell me", "make it", "slow please", "stall"]
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_without_a_model_the_greeting_says_how_to_connect_one(run: Run, scripted: Scripted) -> None:
    scripted([], agents={}, models={})
    result = run("chat", input="")
    assert (result.exit_code, result.stdout) == (0, "")
    told = [line for line in result.stderr.splitlines() if line != "finishing what runs …"]  # if it is slow
    whom, hint = told
    assert whom == "agent main · session agent:main:main · model holdfast/recall · in this process"
    assert "ANTHROPIC_API_KEY" in hint


MARKS = st.lists(
    st.sampled_from(["word ", "\n", "\n\n", "- item\n", "1. one\n", "```\n", "~~~py\n", "  in\n", "# h\n"])
)


@given(MARKS)
def test_blocks_that_were_shown_never_change_and_nothing_is_lost(parts: list[str]) -> None:
    shown: list[str] = []
    rest = ""
    for part in parts:
        done, rest = finished(rest + part)
        shown += [done] if done else []
    assert "".join(shown) + rest == "".join(parts)
    assert all(block.endswith("\n") for block in shown)


def test_a_fence_and_a_list_stay_whole() -> None:
    code = "```py\na\n\nb\n```\n\n"
    assert finished(f"one\n\n{code}- x\n\n- y\n\nlast\n") == (f"one\n\n{code}- x\n\n- y\n\n", "last\n")
    assert finished("```\na\n\nb\n") == ("", "```\na\n\nb\n")
    assert finished("1. x\n\n   more of x\n\n2. y\n\n") == ("", "1. x\n\n   more of x\n\n2. y\n\n")


def event(stream: str, **data: Any) -> dict[str, Any]:
    return {"stream": stream, "data": data}


@given(
    st.text(min_size=1).filter(str.strip) | st.sampled_from([".", "NO", "NO_REPLYING"]),
    st.sets(st.integers(0, 20)),
)
def test_words_that_were_lost_are_made_up_for(text: str, lost: set[int]) -> None:
    reading = Reading()
    said = ""
    heard = [event("assistant", kind="text", delta=c) for n, c in enumerate(text) if n not in lost]
    heard.append(event("assistant", kind="message", text=text))
    heard.append(event("lifecycle", phase="end", status="committed", text=text))
    for each in heard:
        for happening in reading.read(each):
            if isinstance(happening, Again):
                said = ""
            said += happening.text if isinstance(happening, Words) else ""
    assert said == text
    assert isinstance(happening, End)


@given(st.sampled_from(["NO_REPLY", " `NO_REPLY`\n", "NO_REPLY."]), st.integers(1, 9))
def test_an_agent_that_has_nothing_to_say_is_not_quoted(text: str, size: int) -> None:
    reading = Reading()
    heard = [event("assistant", kind="text", delta=text[n : n + size]) for n in range(0, len(text), size)]
    heard.append(event("assistant", kind="message", text=text))
    heard.append(event("lifecycle", phase="end", status="committed", text=text))
    assert [h for each in heard for h in reading.read(each)] == [End("committed")]


def test_tool_events_become_lines_and_questions() -> None:
    reading = Reading()
    asked = {"id": "appr-1", "tool": "exec", "command": "make"}
    happenings = [
        *reading.read(
            event("tool", phase="start", callId="c", name="exec", text='{"command": "make\\n all"}')
        ),
        *reading.read(
            event(
                "tool",
                phase="progress",
                callId="c",
                name="exec",
                text="it waits",
                approval={**asked, "status": "pending"},
            )
        ),
        *reading.read(
            event(
                "tool",
                phase="progress",
                callId="c",
                name="exec",
                text="by ann",
                approval={**asked, "status": "approved"},
            )
        ),
        *reading.read(
            event("tool", phase="progress", callId="c", name="exec", text="waiting for approval appr-2: x")
        ),
        *reading.read(event("tool", phase="end", callId="c", name="exec", text="\n boom \nx", isError=True)),
    ]
    assert happenings == [
        Tool("start", "c", "exec", "make all"),
        NeedsApproval("c", {**asked, "status": "pending"}),
        Tool("progress", "c", "exec", "make all", "by ann"),
        Tool("progress", "c", "exec", "make all", "waiting for approval appr-2: x"),
        Tool("end", "c", "exec", "make all", "boom", failed=True),
    ]


def test_keys_edit_a_line_and_a_paste_stays_one_message() -> None:
    line = TypedLine()
    assert list(line.feed("helo\x7flo\x1b[A\x1b[200~ there")) == []
    assert line.text == "hello there"
    assert list(line.feed("\x17\n")) == ["hello"]
    assert list(line.feed("one\ntwo\r")) == ["one\ntwo"]
    assert list(line.feed("half\x15\x04")) == []
    assert line.ended


@given(st.text())
def test_nothing_on_the_screen_is_obeyed_by_a_terminal(text: str) -> None:
    assert all(ch in "\n\t" or (ord(ch) >= 32 and ch not in "\x7f\x9b\u202e") for ch in safe(text))
    assert all(ch == "\n" or ch.isprintable() for ch in exact(text))
    assert len(safe(text)) == len(text)


def test_what_a_person_approves_hides_nothing() -> None:
    assert exact("ls\u200b \x1b[8m; rm\t-r\n") == "ls\\u{200b} \\e[8m; rm\\t-r\n"


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"]) | st.just("\n"))))
def test_the_history_gives_back_what_was_typed(entries: list[str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder) / "chat_history")
        kept = [entry for entry in entries if history.add(entry)]
        assert history.load() == kept
        assert not any(entry.startswith(" ") for entry in kept)
