"""The container and the compose file, as far as they can be held against this program without an engine."""

from __future__ import annotations

import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.cli.root import cli
from holdfast.home import Home

sys.path.append(str(Path(__file__).parent / "gateway"))

from serving import running

from holdfast.runtime import open_home

ROOT = Path(__file__).parents[1]
COMPOSE = ROOT / "deploy/compose.yaml"
CONTAINER = ROOT / "deploy/Containerfile"


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return found


def steps(name: str) -> list[str]:
    """The lines of one instruction, joined where they go on."""
    text = CONTAINER.read_text().replace("\\\n", " ")
    return [line.split(None, 1)[1] for line in text.splitlines() if line.startswith(f"{name} ")]


def test_what_is_copied_into_the_image_is_there_and_is_enough_to_build() -> None:
    sources = [source for step in steps("COPY") if "--from" not in step for source in step.split()[:-1]]
    assert all((ROOT / source).exists() for source in sources)
    assert {"pyproject.toml", "src", "web"} <= set(sources)


def test_it_runs_as_nobody_special_and_its_command_is_one_that_the_program_has() -> None:
    assert steps("USER") == ["10001"]
    [entry], [command] = steps("ENTRYPOINT"), steps("CMD")
    assert yaml.safe_load(entry) == ["holdfast"]
    name, *arguments = yaml.safe_load(command)
    found = cli.get_command(None, name)  # type: ignore[arg-type]
    assert found is not None
    assert found.make_context(name, arguments).params["host"] == "0.0.0.0"


def test_two_gateways_share_a_database_and_the_files_but_no_index() -> None:
    services = compose()["services"]
    assert services["db"]["image"].startswith("pgvector/pgvector:")
    one, two = (services[name] for name in ("gateway-1", "gateway-2"))
    stores = {each["environment"]["HOLDFAST_STORE"] for each in (one, two)}
    assert len(stores) == 1
    assert stores.pop().startswith("postgresql+psycopg://")
    assert one["ports"] != two["ports"]
    assert all(port.startswith("127.0.0.1:") for each in (one, two) for port in each["ports"])
    shared = set(one["volumes"]) & set(two["volumes"])
    assert {volume.rpartition("/")[2] for volume in shared} == {
        *("workspace", "attachments", "skills", "agents", "continuation", "credentials")
    }
    assert not set(one["volumes"]) & set(two["volumes"]) - shared
    assert {volume.partition(":")[0] for each in services.values() for volume in each["volumes"]} == set(
        compose()["volumes"]
    )


def test_the_folders_are_those_of_a_home_in_the_image() -> None:
    home = Home(Path("/data/home"))
    assert f"HOLDFAST_HOME={home.path}" in steps("ENV")[0]
    made = re.search(r"for part in ([^;]+);", CONTAINER.read_text().replace("\\\n", " "))
    assert made is not None
    mounts = {volume.rpartition("/")[2] for volume in compose()["services"]["gateway-1"]["volumes"][1:]}
    assert set(made[1].split()) == mounts
    assert {home.credentials.name, home.skills.name, home.workspace("main", default=True).name} <= mounts


def test_every_variable_is_one_that_the_program_reads() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "src/holdfast").rglob("*.py"))
    for name in compose()["services"]["gateway-1"]["environment"]:
        assert f'"{name}"' in sources


def test_the_health_check_knows_a_gateway_that_is_ready_from_one_that_is_not(tmp_path: Path) -> None:
    (check,) = {
        compose()["services"]["gateway-1"]["healthcheck"]["test"][-1],
        yaml.safe_load(steps("HEALTHCHECK")[0].partition("CMD ")[2])[-1],
    }
    with open_home(tmp_path / "home") as hold, running(hold) as gateway:
        here = check.replace("http://127.0.0.1:8787", gateway.url)
        assert subprocess.run([sys.executable, "-c", here], timeout=60, check=False).returncode == 0
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        gone = check.replace("8787", str(free.getsockname()[1]))
        done = subprocess.run([sys.executable, "-c", gone], capture_output=True, timeout=60, check=False)
    assert done.returncode != 0


def _has_compose() -> bool:
    docker = shutil.which("docker")
    if docker is None:
        return False
    return subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not _has_compose(), reason="the program docker has no compose here")
def test_compose_itself_can_read_it() -> None:
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "POSTGRES_PASSWORD": "x", "HOLDFAST_TOKEN": "y"}
    command = shlex.split(f"docker compose -f {COMPOSE} config --quiet")
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
