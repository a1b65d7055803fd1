"""The command line. Each command is loaded when it is called, so that `--help` costs next to nothing."""

from __future__ import annotations


def main() -> None:
    """The entry point of the `holdfast` program."""
    from holdfast.cli.root import cli

    cli()
