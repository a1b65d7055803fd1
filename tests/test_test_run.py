"""The run of the tests itself: nothing is tried twice, the quick one is chosen by measure."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "tools"))

import slow_tests
import torture

import forks
from builders import PATIENCE, measured_name

ROOT = Path(__file__).parents[1]


def test_no_test_is_tried_a_second_time_anywhere() -> None:
    for name in (".ci/run", "Makefile", "pyproject.toml", "constraints.txt", "requirements.lock"):
        text = (ROOT / name).read_text()
        assert "--reruns" not in text
        assert "rerunfailures" not in text


def test_the_quick_run_keeps_the_cheapest_within_its_budget() -> None:
    found = {"a.cheap": [0.1, 0.1], "a.dear": [5.0], "a.many": [0.2] * 10, "a.middling": [0.5]}
    assert slow_tests.slow(found, 3.0) == ["a.dear"]
    assert slow_tests.slow(found, 2.3) == ["a.dear", "a.middling"]
    assert slow_tests.slow(found, 100.0) == []


def test_what_was_measured_is_read_from_the_run_and_postgres_is_left_out(tmp_path: Path) -> None:
    lines = ["1.5\t0.5\t9\t{}::test_a[sqlite]", "9\t0\t9\t{}::test_a[postgres]", "1\t0\t9\t{}::test_b"]
    (tmp_path / "gw0.tsv").write_text("\n".join(lines).format(*["tests/log/test_x.py"] * 3))
    assert slow_tests.durations(tmp_path) == {
        "tests.log.test_x.test_a": [2.0],
        "tests.log.test_x.test_b": [1.0],
    }


def test_a_slow_test_is_named_as_pytest_names_it(request: pytest.FixtureRequest) -> None:
    assert measured_name(request.node.nodeid) == f"tests.test_test_run.{request.node.name}"
    assert measured_name("tests/x/test_y.py::TestZ::test_a[1::2]") == "tests.x.test_y.TestZ.test_a"


SAYS_WHO_IT_IS = """
import os, sys
print(sys.argv[1:], os.getcwd(), os.environ.get("TIDE"), sys.stdin.read())
sys.exit(3)
"""


@pytest.mark.parametrize("through", [forks.run, subprocess.run])
def test_a_forked_process_is_called_and_ends_as_any_other(
    through: Callable[..., Any], tmp_path: Path
) -> None:
    python = sys.executable if through is forks.run else forks.python()
    command = [python, "-c", SAYS_WHO_IT_IS, "a", "b c"]
    env = {"TIDE": "high"}
    done = through(command, cwd=tmp_path, env=env, input="said", capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, f"['a', 'b c'] {tmp_path} high said\n"), done.stderr


WAITS = "import time; print(flush=True); time.sleep(600)"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_forked_process_dies_of_the_signal_that_it_gets(how: signal.Signals) -> None:
    with forks.Popen([sys.executable, "-c", WAITS], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert process.poll() is None
        process.send_signal(how)
        assert process.wait(PATIENCE) == -how
    assert not Path(f"/proc/{process.pid}").exists()


def test_the_nightly_run_has_a_thousand_kills_every_state_machine_and_a_soak() -> None:
    parts = {part.name: part for part in torture.parts()}
    crashes = [path.read_text().count("\ndef test_") for path in (ROOT / "tests/crash").glob("test_*.py")]
    assert sum(crashes) * 2 * int(parts["kills"].env["HOLDFAST_CRASH_KILLS"]) >= 1000
    machines = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("test_*.py")
        if "RuleBasedStateMachine" in path.read_text() and path != Path(__file__)
    }
    assert machines
    assert machines <= set(parts["properties"].paths())
    assert [(ROOT / path).is_dir() for path in parts["soak"].paths()] == [True]
