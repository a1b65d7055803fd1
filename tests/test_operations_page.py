"""docs/operations.md names what a gateway really tells."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from holdfast.runtime import open_home

sys.path.append(str(Path(__file__).parent / "gateway"))

from serving import running

ROOT = Path(__file__).parents[1]


def test_every_metric_that_the_page_explains_is_told(tmp_path: Path) -> None:
    page = (ROOT / "docs/operations.md").read_text()
    named = set(re.findall(r"^\| `(holdfast_\w+)` \|", page, re.M))
    with open_home(tmp_path / "home") as hold, running(hold) as gateway, gateway.client(gateway.admin) as api:
        told = api.get("/metrics").text
    assert len(named) >= 7
    assert {
        name
        for name in named
        if f"# TYPE {name} " not in told and f"# TYPE {name.removesuffix('_total')}" not in told
    } == set()


def test_every_command_of_the_page_is_one_of_the_program(tmp_path: Path) -> None:
    import click

    from holdfast.cli.root import cli

    pages = [(ROOT / "docs" / name).read_text() for name in ("operations.md", "scaling.md")]
    lines = [line for page in pages for line in re.findall(r"^holdfast (.+?)(?:\s+#.*)?$", page, re.M)]
    assert len(lines) >= 10
    for line in lines:
        context = click.Context(cli, info_name="holdfast")
        command: click.Command = cli
        words = line.split()
        while isinstance(command, click.Group):
            found = command.get_command(context, words.pop(0))
            assert found is not None, line
            command = found
        command.make_context(command.name, words, parent=context)


def test_every_benchmark_that_the_pages_name_is_there() -> None:
    for name in ("operations.md", "scaling.md"):
        for path in re.findall(r"`python (bench/\w+\.py)", (ROOT / "docs" / name).read_text()):
            assert (ROOT / path).is_file()
