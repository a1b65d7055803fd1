"""What is shipped: an sdist with the pages in it, and a wheel from that on a machine without Node."""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling import build

ROOT = Path(__file__).parents[1]
PAGE = "src/holdfast/gateway/built/index.html"
NPM = f"""#!/bin/sh
[ "$1" = run ] || exit 0
mkdir -p ../{Path(PAGE).parent} && echo '<p>built</p>' > ../{PAGE}
"""


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As much of the sources as a build looks at, with an `npm` that builds at once."""
    place = tmp_path / "sources"
    for name in ("pyproject.toml", "README.md", "LICENSE", "web/hatch_build.py", "web/package-lock.json"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, place / name)
    for name in ("web/index.html", "web/vite.config.ts", "src/holdfast/__init__.py"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("")
    plugin = shutil.ignore_patterns("node_modules", "dist")
    shutil.copytree(ROOT / "integrations", place / "integrations", ignore=plugin)
    (place / ".gitignore").write_text((ROOT / ".gitignore").read_text())
    have_npm(tmp_path / "bin", NPM, monkeypatch)
    return place


def have_npm(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    (folder / "npm").write_text(script)
    (folder / "npm").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))


def test_the_sdist_has_the_pages_and_is_enough_for_a_wheel_without_node(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(sources)
    made = tmp_path / build.build_sdist(str(tmp_path))
    shutil.unpack_archive(made, tmp_path / "unpacked")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert (unpacked / PAGE).read_text() == "<p>built</p>\n"
    have_npm(tmp_path / "without", "#!/bin/sh\nexit 1\n", monkeypatch)
    os.utime(unpacked / PAGE, (1, 1))
    monkeypatch.chdir(unpacked)
    assert build.get_requires_for_build_wheel() == []
    wheel = tmp_path / build.build_wheel(str(tmp_path))
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read(PAGE.removeprefix("src/")) == b"<p>built</p>\n"
        shipped = {n for n in archive.namelist() if n.startswith("holdfast/openclaw_plugin/")}
    assert {f"holdfast/openclaw_plugin/{n}" for n in ("src/index.ts", "build.mjs", "package.json")} <= shipped
