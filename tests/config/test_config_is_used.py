"""Every setting does something: one that no code reads would be a promise that nobody keeps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

import holdfast
from holdfast.config import Config

PACKAGE = Path(holdfast.__file__).parent
# Settings of adapters that are not there yet; what adopts a home of OpenClaw keeps them for the day they are.
AWAITED = {"app_token", "bot_token"}


def settings(model: type[BaseModel], seen: set[type[BaseModel]]) -> Iterator[str]:
    """The name of every setting in a model and in all that it is made of."""
    if model in seen:
        return
    seen.add(model)
    for name, field in model.model_fields.items():
        yield name
        for part in re.findall(r"holdfast\.config\.[\w.]+", str(field.annotation)):
            found = _class(part)
            if found is not None:
                yield from settings(found, seen)


def _class(path: str) -> type[BaseModel] | None:
    module, _, name = path.rpartition(".")
    found = getattr(__import__(module, fromlist=[name]), name, None)
    return found if isinstance(found, type) and issubclass(found, BaseModel) else None


def test_every_setting_is_read_somewhere() -> None:
    sources = [path for path in PACKAGE.rglob("*.py") if PACKAGE / "config" not in path.parents]
    words = set(re.findall(r"\w+", "\n".join(path.read_text("utf-8") for path in sources)))
    names = set(settings(Config, set()))
    assert len(names) > 200
    assert sorted(names - words - AWAITED) == []
