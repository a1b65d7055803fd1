"""`holdfast connect`: make another program use this home."""

from __future__ import annotations

import click

from holdfast.cli.commands.connect_coding_agents import claude_code, codex
from holdfast.cli.commands.connect_openclaw import openclaw
from holdfast.cli.groups import Group


@click.group(cls=Group)
def connect() -> None:
    """Make another program use this home."""


connect.add_command(claude_code)
connect.add_command(codex)
connect.add_command(openclaw)
