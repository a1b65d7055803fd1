"""Plugins as their authors write them, in a folder of a test's own, and a home that has them."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.config import Config
from holdfast.home import Home
from holdfast.plugins import PluginHost

_COUNT = itertools.count()


def plugin(folder: Path, code: str, **manifest: Any) -> str:
    """Write a plugin beneath `folder`; gives its id. Modules have names of their own in each test."""
    number = next(_COUNT)
    id_ = manifest.pop("id", f"p{number}")
    module = f"plugin_{os.getpid()}_{number}"
    place = folder / id_
    place.mkdir(parents=True)
    said = {"id": id_, "version": "1.0", "module": module} | manifest
    (place / "holdfast.plugin.json").write_text(json.dumps(said))
    (place / f"{module}.py").write_text(code)
    return str(id_)


def host_of(home: Path, workspace: Path | None = None, **plugins: Any) -> PluginHost:
    config = Config.model_validate({"plugins": plugins})
    return PluginHost(Home(home), lambda: config, lambda: [] if workspace is None else [workspace])


@contextmanager
def loaded(home: Path, **plugins: Any) -> Iterator[PluginHost]:
    host = host_of(home, **plugins)
    host.load()
    try:
        yield host
    finally:
        host.stop()
