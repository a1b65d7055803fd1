"""What commands print: tables, JSON, and text of models and tools, which is read and never obeyed."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from typing import IO, Any, Final

import click

from holdfast.clock import iso


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str) -> None:
    """A table; on a terminal it fits the width, in a pipe nothing is cut."""
    if not rows:
        click.echo(empty)
        return
    cells = [[cell(value) for value in row] for row in rows]
    if sys.stdout.isatty():
        render_table(columns, cells, sys.stdout)
    else:
        click.echo("\n".join(_columns([list(columns), *cells])))


def render_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], out: IO[str], width: int | None = None
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(text) for text in row))
    Console(file=out, width=width).print(table)


def print_fields(fields: Mapping[str, object]) -> None:
    """A name and a value on each line."""
    wide = max((len(name) for name in fields), default=0)
    for name, value in fields.items():
        click.echo(f"{name:<{wide}}  {cell(value)}".rstrip())


def cell(value: object) -> str:
    """A value on one line, with nothing in it that a terminal would obey."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "".join(ch if ch.isprintable() else " " if ch.isspace() else "\ufffd" for ch in str(value))


def when(at: int | None) -> str | None:
    """A time to the minute, in UTC."""
    return None if at is None else iso(at)[:16].replace("T", " ")


def size(count: int) -> str:
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError("unreachable")


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    return ["  ".join(f"{text:<{w}}" for text, w in zip(row, widths, strict=True)).rstrip() for row in rows]


_KEPT: Final = frozenset("\n\t")
_TURNING: Final = frozenset(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A))))


def safe(text: str) -> str:
    """Without what a terminal would obey: control characters, and marks that turn the direction of text."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(ch if ch in _KEPT or not _obeyed(ch) else "\ufffd" for ch in text)


def exact(text: str) -> str:
    """For what a person decides on: every character that does not show itself is written out."""
    return "".join(ch if ch == "\n" or ch.isprintable() else _written(ch) for ch in text)


def _obeyed(ch: str) -> bool:
    return ch in _TURNING or unicodedata.category(ch) in ("Cc", "Cs", "Zl", "Zp")


def _written(ch: str) -> str:
    return {"\t": "\\t", "\r": "\\r", "\x1b": "\\e"}.get(ch, f"\\u{{{ord(ch):x}}}")
