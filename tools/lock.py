"""Write `requirements.lock`: every pin of `constraints.txt` with the hashes of all files of that release.

All files, so that the same lock serves every machine and every Python. Where packages come from is pip's own
setting; nothing here names it.
"""

from __future__ import annotations

import html
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import httpx
from packaging.requirements import Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

ROOT: Final = Path(__file__).parents[1]
PINS: Final = ROOT / "constraints.txt"
LOCK: Final = ROOT / "requirements.lock"
HEAD: Final = "# Made by `make lock` from constraints.txt; do not edit.\n"
_LINK: Final = re.compile(r'<a [^>]*href="[^"#]*#sha256=([0-9a-f]{64})"[^>]*>([^<]+)</a>')


def pins() -> list[Requirement]:
    return [Requirement(line) for line in PINS.read_text().splitlines() if line.strip()]


def version_of(pin: Requirement) -> Version:
    """The one version that a pin allows; a pin that is none is an error."""
    (only,) = pin.specifier
    if only.operator != "==":
        raise SystemExit(f"not a pin: {pin}")
    return Version(only.version)


def file_version(name: str) -> Version | None:
    """The version that a file is of; None for a form that pip would not install."""
    try:
        return parse_wheel_filename(name)[1] if name.endswith(".whl") else parse_sdist_filename(name)[1]
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None


def hashes(page: str, version: Version) -> list[str]:
    """The hashes of a release's files, from the page that lists a project's."""
    found = ((digest, html.unescape(name).strip()) for digest, name in _LINK.findall(page))
    return sorted(digest for digest, name in found if file_version(name) == version)


def index_url() -> str:
    from pip._internal.models.index import PyPI

    asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    set_to = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return (set_to or PyPI.simple_url).rstrip("/")


def locked(client: httpx.Client, pin: Requirement) -> str:
    answer = client.get(f"{canonicalize_name(pin.name)}/", headers={"Accept": "text/html"})
    answer.raise_for_status()
    found = hashes(answer.text, version_of(pin))
    if not found:
        raise SystemExit(f"no files of {pin}")
    return " \\\n    ".join([str(pin), *(f"--hash=sha256:{digest}" for digest in found)])


def main() -> None:
    with (
        httpx.Client(base_url=f"{index_url()}/", follow_redirects=True, timeout=120) as client,
        ThreadPoolExecutor(8) as threads,
    ):
        lines = list(threads.map(lambda pin: locked(client, pin), pins()))
    LOCK.write_text(HEAD + "".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main()
