"""A model's files from a hub: named with their hashes in a manifest, fetched once, checked, then local.

A manifest is JSON: `{"model": NAME, "base": ADDRESS, "files": {PATH: SHA256}}`. It lies on this machine, or
beside the files at the hub, where `base` may be left out.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import urlsplit

from holdfast.errors import InvalidInput, Unavailable
from holdfast.memory.embedders.safetensors import sha256_of

Progress = Callable[[str, int, int], None]

MANIFEST: Final = "manifest.json"
_ATTEMPTS: Final = 3
_MOST_BYTES: Final = 4 << 30
_MOST_MANIFEST: Final = 1 << 20
_TIMEOUT: Final = 30.0
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9.-]+")


class DownloadFailed(Unavailable):
    """The hub did not give the files that were named; the message says what it gave."""

    code = "model_download_failed"


@dataclass(frozen=True, slots=True)
class Manifest:
    """Which files make a model, where they are, and what each must hash to."""

    model: str
    base: str
    files: Mapping[str, str]

    @classmethod
    def parse(cls, data: bytes, base: str = "") -> Manifest:
        try:
            told = json.loads(data)
            model, files = told["model"], {str(k): str(v).lower() for k, v in told["files"].items()}
            found = cls(str(model), str(told.get("base") or base).rstrip("/"), files)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidInput(
                "the manifest of the model cannot be read",
                hint='It is JSON: {"model": NAME, "base": ADDRESS, "files": {PATH: SHA256}}.',
            ) from error
        check_address(found.base)
        for path, digest in files.items():
            _check_file(path, digest)
        return found


class HubModel:
    """One model of a hub. `folder` is where its files are kept, whole ones under their own names only."""

    def __init__(self, place: str, models: Path) -> None:
        self._place, _, pin = place.partition("#sha256=")
        self._pin = pin.lower()
        self._here = Path(self._place).expanduser() if "://" not in self._place else None
        name = _NOT_PLAIN.sub("-", PurePosixPath(urlsplit(self._place).path.rstrip("/")).stem) or "model"
        self.folder = models / f"{name}-{hashlib.sha256(place.encode()).hexdigest()[:12]}"

    def ready(self) -> Manifest | None:
        """The manifest, if all of its files are here; nothing is asked of the hub."""
        try:
            manifest = self._read((self._here or self.folder / MANIFEST).read_bytes())
        except OSError:
            return None
        return manifest if all((self.folder / path).is_file() for path in manifest.files) else None

    def fetch(self, progress: Progress | None = None) -> Manifest:
        """Bring what is missing; a file that is cut short goes on where it ended, a wrong one is refused."""
        import httpx

        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with httpx.Client(timeout=_TIMEOUT, follow_redirects=True) as client:
                manifest = self._manifest(client)
                for path, digest in manifest.files.items():
                    if not (self.folder / path).is_file():
                        told = _telling(progress, f"{manifest.model}: {path}")
                        _bring(client, f"{manifest.base}/{path}", self.folder / path, digest, told)
        except OSError as error:
            raise DownloadFailed(f"the model cannot be kept in {self.folder}: {error.strerror}") from error
        return manifest

    def _manifest(self, client: Any) -> Manifest:
        if self._here is not None:
            return self._read(_read_local(self._here))
        check_address(self._place)
        data = _small(client, f"{self._place.rstrip('/')}/{MANIFEST}")
        manifest = self._read(data)
        _put(self.folder / MANIFEST, data)
        return manifest

    def _read(self, data: bytes) -> Manifest:
        if self._pin and hashlib.sha256(data).hexdigest() != self._pin:
            raise DownloadFailed(
                "the manifest of the model is not the one that the config names",
                hint="See whether the model was published anew, and set its sha256.",
            )
        return Manifest.parse(data, "" if self._here is not None else self._place)


def check_address(address: str) -> None:
    """Models come over TLS; plain HTTP only from this machine."""
    parts = urlsplit(address)
    if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        return
    raise InvalidInput(
        f"models are not fetched from {address[:80]!r}", hint="Give an https:// address of the hub."
    )


def _check_file(path: str, digest: str) -> None:
    parts = PurePosixPath(path).parts
    plain = parts and not path.startswith("/") and "\\" not in path and "\0" not in path
    if not plain or ".." in parts or not _HASH.fullmatch(digest):
        raise InvalidInput(
            f"the manifest names a file that cannot be taken: {path[:80]!r}",
            hint="Files are relative paths within the model's folder, each with its sha256 in hex.",
        )


def _bring(client: Any, url: str, target: Path, digest: str, told: Callable[[int, int], None]) -> None:
    """One file: written aside, checked, and only then given its name."""
    part = target.with_name(target.name + ".part")
    part.parent.mkdir(parents=True, exist_ok=True)
    why = ""
    for _ in range(_ATTEMPTS):
        why = _continue(client, url, part, told)
        if not why:
            break
    if why:
        raise DownloadFailed(f"{target.name} was not fetched: {why}", hint="It goes on when tried again.")
    if sha256_of(part) != digest:
        part.unlink()
        raise DownloadFailed(
            f"{target.name} is not the file that the manifest names (sha256 differs)",
            hint="Nothing of it was kept. See whether the hub and the manifest belong together.",
        )
    os.replace(part, target)


def _continue(client: Any, url: str, part: Path, told: Callable[[int, int], None]) -> str:
    """Read on from what is there; returns what went wrong, nothing if the file came to its end."""
    import httpx

    have = part.stat().st_size if part.exists() else 0
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        with client.stream("GET", url, headers=headers) as answer:
            check_address(str(answer.url))
            if answer.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
                part.unlink(missing_ok=True)
                return "the hub has less of it than is here"
            if answer.status_code not in (httpx.codes.OK, httpx.codes.PARTIAL_CONTENT):
                raise DownloadFailed(f"the hub answered {answer.status_code} for {part.stem}")
            begin = have if answer.status_code == httpx.codes.PARTIAL_CONTENT else 0
            return _receive(answer, part, begin, told)
    except httpx.HTTPError as error:
        return str(error) or type(error).__name__


def _receive(answer: Any, part: Path, begin: int, told: Callable[[int, int], None]) -> str:
    total = begin + int(answer.headers.get("content-length") or 0)
    done = begin
    with part.open("r+b" if begin else "wb") as out:
        out.seek(begin)
        for piece in answer.iter_raw():
            out.write(piece)
            done += len(piece)
            if done > _MOST_BYTES:
                raise DownloadFailed(f"{part.stem} is larger than {_MOST_BYTES >> 30} GiB")
            told(done, max(total, done))
    return "" if done >= total else f"it ended after {done} of {total} bytes"


def _small(client: Any, url: str) -> bytes:
    import httpx

    try:
        answer = client.get(url)
    except httpx.HTTPError as error:
        raise DownloadFailed(f"the hub did not answer: {error or type(error).__name__}") from error
    check_address(str(answer.url))
    if answer.status_code != httpx.codes.OK or len(answer.content) > _MOST_MANIFEST:
        raise DownloadFailed(
            f"the hub answered {answer.status_code} for the manifest",
            hint=f"The address must hold a {MANIFEST}; or keep one here and name its path as the model.",
        )
    found: bytes = answer.content
    return found


def _read_local(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"the manifest {path} cannot be read: {error.strerror}") from error


def _put(path: Path, data: bytes) -> None:
    draft = path.with_name(path.name + ".part")
    draft.write_bytes(data)
    os.replace(draft, path)


def _telling(progress: Progress | None, name: str) -> Callable[[int, int], None]:
    def told(done: int, total: int) -> None:
        if progress is not None:
            progress(name, done, total)

    return told
