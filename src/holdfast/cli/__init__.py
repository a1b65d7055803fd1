"""The command line. Each command is loaded when it is called, so that `--help` costs next to nothing."""

from __future__ import annotations

import gc
from typing import Final

_GARBAGE_AFTER: Final = 20_000
"""New objects, not Python's 700: what a start loads stays, and looking through it was a seventh of it."""


def main() -> None:
    """The entry point of the `holdfast` program."""
    from holdfast.cli.root import cli

    gc.set_threshold(_GARBAGE_AFTER, *gc.get_threshold()[1:])
    cli()
