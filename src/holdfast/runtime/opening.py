"""Opening a home, by its folder or by the URL of its store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from holdfast.clock import Clock, SystemClock
from holdfast.config import Config, ConfigStore
from holdfast.home import Home
from holdfast.log import open_store, sqlite_url
from holdfast.runtime.hold import Holdfast


def open_home(
    home: str | os.PathLike[str] | None = None,
    *,
    store_url: str | None = None,
    clock: Clock | None = None,
    reads_only: bool = False,
    may_follow: bool = False,
) -> Holdfast:
    """Open a home, made if it is not there. The store is `store_url`, `$HOLDFAST_STORE`, or as configured.

    With `reads_only` its search index is followed, not written: another process has it open. With
    `may_follow` it is so only if another process has it open when it is first used.
    """
    place = Home.locate(home)
    place.prepare()
    own = clock or SystemClock()
    config = ConfigStore(place.config, own)
    settings = config.current.store
    store = open_store(
        store_url or configured_url(place, config.current),
        used=place.was_used(),
        clock=clock,
        readers=settings.pool_size,
        busy_ms=settings.busy_timeout_ms,
        lock_ms=settings.lock_timeout_ms,
        durability=settings.durability,
        listen_url=None if settings.listen_url is None else settings.listen_url.reveal(os.environ),
    )
    hold = Holdfast(place, config, store, own, reads_only=reads_only, may_follow=may_follow)
    if config.is_shared:
        _take_up(hold)
    return hold


def _take_up(hold: Holdfast) -> None:
    """Begin with what the store has, and write changes of the config there."""
    from holdfast.runtime.shared_home import take_up

    hold.config.publisher = hold.shared
    try:
        if not hold.reads_only:
            take_up(hold.home, hold.store)
        hold.config.reload()
        if hold.config.last_error is not None:
            raise hold.config.last_error
    except BaseException:
        hold.close()
        raise


def open(home_or_url: str | os.PathLike[str] | None = None, *, clock: Clock | None = None) -> Holdfast:  # noqa: A001
    """Open Holdfast as a library, by its home folder or by the URL of its store."""
    if isinstance(home_or_url, str) and "://" in home_or_url:
        return open_home(store_url=home_or_url, clock=clock)
    return open_home(home_or_url, clock=clock)


STORE_PASSWORD: Final = "store_password"


def configured_url(home: Home, config: Config, env: Mapping[str, str] = os.environ) -> str:
    """`$HOLDFAST_STORE`, else as configured, with the password that is kept apart from the config."""
    if env.get("HOLDFAST_STORE"):
        given = env["HOLDFAST_STORE"]
        return given if "://" in given else sqlite_url(Path(given).expanduser().absolute())
    if config.store.url is not None:
        return _with_password(home, config.store.url.reveal(env))
    return sqlite_url(home.database)


def _with_password(home: Home, text: str) -> str:
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    kept = home.kept_secret(STORE_PASSWORD)
    if kept is None or not text.startswith("postgresql"):
        return text
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        return text
    if url.password is not None or url.username is None:
        return text
    return url.set(password=kept).render_as_string(hide_password=False)
