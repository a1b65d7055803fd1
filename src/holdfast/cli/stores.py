"""Stores as they are named on the command line, and the one that a home uses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from holdfast.cli.groups import App
    from holdfast.log import Store


def store_address(text: str) -> str:
    """The address of a store that was given as a path or as an address."""
    from holdfast.log import sqlite_url

    if not text.strip():
        raise InvalidInput(
            "a store needs a path or an address", hint="Give a file, or postgresql+psycopg://…"
        )
    return text if "://" in text else sqlite_url(Path(text).expanduser().absolute())


def bare_store(text: str, *, must_exist: bool = True) -> Store:
    """A store as it stands, not brought up to date."""
    from sqlalchemy.exc import ArgumentError

    from holdfast.log import Store

    try:
        store = Store(store_address(text))
    except ArgumentError as error:
        raise InvalidInput(
            "not the address of a store", hint="Give a file, sqlite:///PATH or postgresql+psycopg://…"
        ) from error
    except ModuleNotFoundError as error:
        raise InvalidInput(
            f"{error.name} is not installed", hint="pip install 'holdfast[postgres]' for PostgreSQL."
        ) from error
    file = None if store.postgres else Path(str(store.url.database))
    if must_exist and file is not None and not file.is_file():
        raise NotFound(
            f"there is no store at {file}", hint="Check the path; `holdfast up` makes a new store."
        )
    return store


def home_store(app: App) -> Store:
    """The store of the home as it stands, not brought up to date."""
    from holdfast.config import load_config
    from holdfast.runtime import configured_url

    home = app.home
    if not home.path.is_dir():
        raise NotFound(f"there is no home at {home.path}", hint="Make one with `holdfast init`.")
    return bare_store(configured_url(home, load_config(home.config)), must_exist=False)
