"""Publishing: a skill's archive and its entry in the index, written into a folder that is then served."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any, Final

from holdfast.agents.skills import archive
from holdfast.agents.skills.registry import FORMAT, INDEX, Release, check_version, read_index
from holdfast.agents.skills.skill import FILE, Skill, Tier, parse_skill
from holdfast.clock import Clock, iso
from holdfast.errors import Conflict, InvalidInput, NotFound, Unavailable

ARCHIVES: Final = "archives"


def publish(folder: Path, into: Path, clock: Clock, *, version: str | None = None) -> Release:
    """Add a version to the registry in `into`. A version that is out never changes: that is a `Conflict`."""
    skill = _skill(folder)
    chosen = check_version(version or skill.version or "")
    data = archive.pack(folder)
    path = f"{ARCHIVES}/{skill.name}-{chosen}.zip"
    release = Release(
        skill.name, chosen, path, hashlib.sha256(data).hexdigest(), len(data), skill.description
    )
    index = _index(into)
    known = {each.version: each for each in read_index(index).get(skill.name, [])}.get(chosen)
    if known is not None and known.sha256 != release.sha256:
        raise Conflict(f"{skill.name} {chosen} is published already", hint="Choose a higher version.")
    if known is None:
        _write(into / path, data)
        _enter(index, skill, release, iso(clock.now()))
        _write(into / INDEX, (json.dumps(index, indent=2, ensure_ascii=False) + "\n").encode())
    return release


def _skill(folder: Path) -> Skill:
    try:
        text = (folder / FILE).read_text("utf-8")
    except FileNotFoundError:
        raise NotFound(f"there is no {FILE} in {folder}", hint="Name the folder of a skill.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{folder / FILE} cannot be read: {error}") from error
    return parse_skill(text, folder / FILE, Tier.EXTRA)


def _index(into: Path) -> dict[str, Any]:
    try:
        found = json.loads((into / INDEX).read_text("utf-8"))
    except FileNotFoundError:
        return {"format": FORMAT, "skills": {}}
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{into / INDEX} cannot be read: {error}") from error
    read_index(found)
    return dict(found)


def _enter(index: dict[str, Any], skill: Skill, release: Release, at: str) -> None:
    """The description is that of the version published last."""
    entry = index["skills"].setdefault(skill.name, {"versions": {}})
    entry["description"] = skill.description
    if skill.homepage is not None:
        entry["homepage"] = skill.homepage
    entry["versions"][release.version] = {
        "archive": release.archive,
        "sha256": release.sha256,
        "size": release.size,
        "publishedAt": at,
    }


def _write(path: Path, data: bytes) -> None:
    """Whole or not at all, so that a server never gives out half an index."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=".")
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(data)
        os.replace(draft, path)
    except OSError as error:
        raise Unavailable(f"{path} cannot be written: {error.strerror}") from error
