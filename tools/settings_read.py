"""A plugin of mypy that notes where settings are read, by the type of what is read and not by its name.

For each file that reads some it writes `<model>.<key> <line>` under `.mypy_cache/settings_read`, with a
digest of the file: mypy looks at a file again only when it changed. `tests/config/test_config_is_used.py`
reads these notes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from mypy.options import Options
from mypy.plugin import AttributeContext, Plugin
from mypy.types import Type

ROOT: Final = Path(__file__).parents[1]
NOTES: Final = Path("settings_read")
CONFIG: Final = "holdfast.config."


def digest(source: Path) -> str:
    return hashlib.sha256(source.read_bytes()).hexdigest()


class SettingsRead(Plugin):
    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._folder = ROOT / options.cache_dir / NOTES
        self._begun: set[str] = set()

    def get_attribute_hook(self, fullname: str) -> Callable[[AttributeContext], Type] | None:
        if not fullname.startswith(CONFIG):
            return None
        model, _, name = fullname.rpartition(".")

        def note(context: AttributeContext) -> Type:
            self._note(context.api.path, f"{model.rpartition('.')[2]}.{name} {context.context.line}")
            return context.default_attr_type

        return note

    def _note(self, path: str, read: str) -> None:
        source = (ROOT / path).resolve()
        if not source.is_relative_to(ROOT / "src"):
            return
        kept = self._folder / f"{source.relative_to(ROOT / 'src').as_posix().replace('/', '.')}.txt"
        if path not in self._begun:
            self._begun.add(path)
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(f"{digest(source)}\n", "utf-8")
        with kept.open("a", encoding="utf-8") as file:
            file.write(f"{read}\n")


def plugin(_version: str) -> type[Plugin]:
    return SettingsRead
