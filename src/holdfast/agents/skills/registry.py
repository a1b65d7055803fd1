"""Skills from a registry: searched, fetched, checked, put into a home, updated and published.

{"format": 1, "skills": {"notes": {"description": "…", "versions": {
        "1.0.0": {"archive": "archives/notes-1.0.0.zip", "sha256": "…", "size": 1234, "publishedAt": "…"}}}}}

An archive's address is taken from the index on; its bytes must have the size and the checksum stated there.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import os
import re
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin, urlsplit

from holdfast.agents.skills import archive
from holdfast.agents.skills.skill import FILE, Skill, Tier, parse_skill
from holdfast.clock import Clock, iso
from holdfast.errors import Conflict, HoldfastError, InvalidInput, NotFound, TooLarge, Unavailable

if TYPE_CHECKING:
    import httpx


INDEX: Final = "index.json"
ARCHIVES: Final = "archives"
FORMAT: Final = 1
MAX_INDEX: Final = 16 * 1024**2
MAX_ARCHIVE: Final = 20 * 1024**2
MAX_FOUND: Final = 50
_TIMEOUT: Final = 30.0
_LONGEST: Final = 300.0
_VERSION: Final = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:-([0-9A-Za-z.-]{1,40}))?")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Release:
    """One version of a skill, as the index has it."""

    name: str
    version: str
    archive: str
    sha256: str
    size: int
    description: str = ""


class Registry:
    """Reads a registry over HTTP. Nothing that it fetches is run."""

    def __init__(self, url: str) -> None:
        self.url = _checked_url(url)

    def search(self, words: str = "", *, limit: int = MAX_FOUND) -> list[Release]:
        """The newest release of each skill whose name or description has all the words."""
        wanted = words.casefold().split()
        found = [
            newest(releases)
            for releases in self.index().values()
            if all(word in f"{releases[0].name} {releases[0].description}".casefold() for word in wanted)
        ]
        return sorted(found, key=lambda release: release.name)[: max(1, min(limit, MAX_FOUND))]

    def find(self, name: str, version: str | None = None) -> Release:
        """A release by name and version; without one the newest that is no pre-release."""
        releases = self.index().get(name, [])
        if not releases:
            raise NotFound(f"the registry has no skill {name[:64]!r}", hint="See `holdfast skills search`.")
        if version is None:
            return newest(releases)
        for release in releases:
            if release.version == version:
                return release
        known = ", ".join(sorted((each.version for each in releases), key=version_order)[-5:])
        raise NotFound(f"{name} has no version {version[:40]!r}", hint=f"There are: {known}.")

    def index(self) -> dict[str, list[Release]]:
        """Every release by the name of its skill."""
        data = self._get(urljoin(self.url, INDEX), MAX_INDEX)
        try:
            return read_index(json.loads(data))
        except (ValueError, RecursionError) as error:
            raise Unavailable(f"the index at {self.url} is not JSON", code="bad_registry") from error

    def download(self, release: Release) -> bytes:
        """The archive of a release, held to its size and checksum."""
        if release.size > MAX_ARCHIVE:
            raise TooLarge(f"the archive of {release.name} is larger than {MAX_ARCHIVE} bytes")
        data = self._get(self._safe(urljoin(self.url, release.archive)), release.size)
        found = hashlib.sha256(data).hexdigest()
        if len(data) != release.size or not hmac.compare_digest(found, release.sha256):
            raise InvalidInput(
                f"the archive of {release.name} {release.version} is not the one that the index names",
                code="bad_checksum",
                hint="Do not use it; tell whoever keeps the registry.",
            )
        return data

    def _safe(self, url: str) -> str:
        """A file of the registry, also where a redirect leads; one elsewhere says nothing of this machine."""
        here = urlsplit(self.url).scheme == "http"
        return _checked_url(url, file=True, here=here)

    def _get(self, url: str, most: int) -> bytes:
        import httpx

        try:
            with (
                httpx.Client(
                    timeout=_TIMEOUT,
                    follow_redirects=True,
                    max_redirects=3,
                    trust_env=not _is_loopback(url),
                    event_hooks={"request": [lambda request: self._safe(str(request.url))]},
                ) as client,
                client.stream("GET", url) as response,
            ):
                response.raise_for_status()
                return _bounded(response, most)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unavailable(
                f"the registry did not give {url}: {error}",
                code="registry_unreachable",
                hint="Check skills.registry.url in the config.",
            ) from error


def read_index(value: Any) -> dict[str, list[Release]]:
    """The releases of an index; an entry that is not whole is left out, an unknown format is an error."""
    skills = value.get("skills") if isinstance(value, dict) and value.get("format") == FORMAT else None
    if not isinstance(skills, dict):
        raise Unavailable(
            f"this is no registry index of format {FORMAT}", code="bad_registry", hint="Check its address."
        )
    found: dict[str, list[Release]] = {}
    for name, entry in skills.items():
        versions = entry.get("versions") if isinstance(entry, dict) else None
        if not _NAME.fullmatch(name) or not isinstance(versions, dict):
            continue
        about = str(entry.get("description", ""))[:1024]
        releases = [_release(name, about, version, body) for version, body in versions.items()]
        whole = [release for release in releases if release is not None]
        if whole:
            found[name] = whole
    return found


def newest(releases: list[Release]) -> Release:
    """The highest version; a pre-release only where there is nothing else."""
    final = [release for release in releases if "-" not in release.version]
    return max(final or releases, key=lambda release: version_order(release.version))


def version_order(version: str) -> tuple[Any, ...]:
    """Versions in their order: numbers by value, a pre-release before its release."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return (-1,)
    pre = tuple((0, int(p), "") if p.isdecimal() else (1, 0, p) for p in (match[4] or "").split(".") if p)
    return (int(match[1]), int(match[2]), int(match[3]), not pre, pre)


def check_version(text: str) -> str:
    if not _VERSION.fullmatch(text):
        raise InvalidInput(f"not a version: {text[:40]!r}", hint="Use three numbers, such as 1.2.0.")
    return text


def _release(name: str, about: str, version: str, body: Any) -> Release | None:
    if not isinstance(body, Mapping) or not _VERSION.fullmatch(version):
        return None
    place, sha256, size = body.get("archive"), body.get("sha256"), body.get("size")
    if not isinstance(place, str) or not isinstance(sha256, str) or not isinstance(size, int):
        return None
    whole = _SHA256.fullmatch(sha256) and size > 0
    return Release(name, version, place, sha256, size, about) if whole else None


def _bounded(response: httpx.Response, most: int) -> bytes:
    data = bytearray()
    until = time.monotonic() + _LONGEST
    for chunk in response.iter_bytes():
        data += chunk
        if time.monotonic() > until:
            raise Unavailable(f"{response.url} comes too slowly", code="registry_unreachable")
        if len(data) > most:
            raise TooLarge(f"{response.url} is larger than {most} bytes", code="bad_registry")
    return bytes(data)


def _checked_url(url: str, *, file: bool = False, here: bool = True) -> str:
    """`here` says whether this machine may be reached without encryption."""
    parts = urlsplit(url)
    safe = parts.scheme == "https" or (here and parts.scheme == "http" and _is_loopback(url))
    if not safe or not parts.hostname or parts.username is not None:
        raise InvalidInput(
            f"not the address of a registry: {url[:120]}",
            hint="Use https://…; http is for this machine only.",
        )
    return url if file or url.endswith("/") else f"{url}/"


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def publish(folder: Path, into: Path, clock: Clock, *, version: str | None = None) -> Release:
    """Add a version to the registry in `into`. A version that is out never changes: that is a `Conflict`."""
    skill = _to_publish(folder)
    if not _NAME.fullmatch(skill.name):
        raise InvalidInput(
            f"a registry takes no skill with the name {skill.name!r}",
            hint="Use letters, digits, dash, dot and underscore.",
        )
    chosen = check_version(version or skill.version or "")
    data = archive.pack(folder)
    path = f"{ARCHIVES}/{skill.name}-{chosen}.zip"
    release = Release(
        skill.name, chosen, path, hashlib.sha256(data).hexdigest(), len(data), skill.description
    )
    index = _index_in(into)
    known = {each.version: each for each in read_index(index).get(skill.name, [])}.get(chosen)
    if known is not None and known.sha256 != release.sha256:
        raise Conflict(f"{skill.name} {chosen} is published already", hint="Choose a higher version.")
    if known is None:
        _write(into / path, data)
        _enter(index, skill, release, iso(clock.now()))
        _write(into / INDEX, (json.dumps(index, indent=2, ensure_ascii=False) + "\n").encode())
    return release


def _to_publish(folder: Path) -> Skill:
    try:
        text = (folder / FILE).read_text("utf-8")
    except FileNotFoundError:
        raise NotFound(f"there is no {FILE} in {folder}", hint="Name the folder of a skill.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{folder / FILE} cannot be read: {error}") from error
    return parse_skill(text, folder / FILE, Tier.EXTRA)


def _index_in(into: Path) -> dict[str, Any]:
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


MARK: Final = ".registry.json"


@dataclass(frozen=True, slots=True)
class Installed:
    """Where a managed skill came from, and what it was then."""

    name: str
    version: str
    registry: str
    sha256: str
    digest: str


@dataclass(frozen=True, slots=True)
class Update:
    """What an update did, or why it did not."""

    name: str
    before: str
    after: str
    error: str | None = None


def install(
    registry: Registry, managed: Path, name: str, *, version: str | None = None, force: bool = False
) -> Skill:
    """Fetch, check and put in place, in one step; nothing of the skill is run.

    A skill of that name which did not come from a registry, or was edited since, is a `Conflict`.
    """
    release = registry.find(name, version)
    if not force:
        _require_unedited(managed, release.name)
    return _place(managed, release, registry.download(release), registry.url)


def update(registry: Registry, managed: Path, name: str, *, force: bool = False) -> Update:
    """Bring one skill to its newest version."""
    mark = mark_of(managed, name)
    if mark is None:
        raise NotFound(f"{name} did not come from a registry", hint="See `holdfast skills list`.")
    release = registry.find(name)
    if version_order(release.version) > version_order(mark.version):
        install(registry, managed, name, version=release.version, force=force)
        return Update(name, mark.version, release.version)
    return Update(name, mark.version, mark.version)


def update_all(registry: Registry, managed: Path, *, force: bool = False) -> list[Update]:
    """Bring every skill that came from a registry up to date; one that fails does not stop the rest."""
    done: list[Update] = []
    for mark in installed(managed):
        try:
            done.append(update(registry, managed, mark.name, force=force))
        except HoldfastError as error:
            done.append(Update(mark.name, mark.version, mark.version, error.message))
    return done


def installed(managed: Path) -> list[Installed]:
    """The skills that came from a registry, by name."""
    try:
        names = sorted(path.name for path in managed.iterdir() if path.is_dir())
    except OSError:
        return []
    return [mark for name in names if (mark := mark_of(managed, name)) is not None]


def mark_of(managed: Path, name: str) -> Installed | None:
    try:
        return Installed(**json.loads((managed / name / MARK).read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _require_unedited(managed: Path, name: str) -> None:
    if not (managed / name).exists():
        return
    mark = mark_of(managed, name)
    if mark is None:
        raise Conflict(
            f"there is a skill {name} that did not come from a registry",
            hint="Move it away, or use --force to replace it.",
        )
    if archive.digest(managed / name) != mark.digest:
        raise Conflict(f"{name} was edited since it was installed", hint="Use --force to lose the edits.")


def _place(managed: Path, release: Release, data: bytes, registry: str) -> Skill:
    """Unpacked beside its place and moved there whole."""
    managed.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=managed, prefix=".new-") as draft:
        folder = Path(draft) / release.name
        archive.unpack(data, folder)
        skill = _read(folder, release.name)
        mark = Installed(release.name, release.version, registry, release.sha256, archive.digest(folder))
        (folder / MARK).write_text(json.dumps(asdict(mark), indent=2) + "\n", "utf-8")
        target = managed / release.name
        _swap(folder, target, Path(draft) / "old")
    return parse_skill((target / FILE).read_text("utf-8"), target / FILE, skill.tier)


def _swap(new: Path, target: Path, old: Path) -> None:
    """Put the new in place of what is there; if that fails, what was there comes back."""
    try:
        if target.exists():
            target.rename(old)
        new.rename(target)
    except OSError as error:
        if old.exists() and not target.exists():
            old.rename(target)
        raise Unavailable(f"{target} cannot be written: {error.strerror}") from error


def _read(folder: Path, name: str) -> Skill:
    try:
        skill = parse_skill((folder / FILE).read_text("utf-8"), folder / FILE, Tier.MANAGED)
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{FILE} is not UTF-8", code="bad_archive") from error
    if skill.name != name:
        raise InvalidInput(
            f"the archive holds {skill.name!r}, not {name!r}",
            code="bad_archive",
            hint="Tell whoever keeps the registry.",
        )
    return skill
