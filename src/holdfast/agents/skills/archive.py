"""A skill as one zip file: packed the same way every time, unpacked without trusting a word of it."""

from __future__ import annotations

import hashlib
import io
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from holdfast.agents.skills.skill import FILE
from holdfast.errors import InvalidInput, TooLarge

MAX_FILES: Final = 500
MAX_BYTES: Final = 20 * 1024**2
_WHEN: Final = (1980, 1, 1, 0, 0, 0)
_CHUNK: Final = 65_536


def pack(folder: Path) -> bytes:
    """The folder's plain files in the order of their names; the same files give the same bytes."""
    out = io.BytesIO()
    total = 0
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in _files(folder):
            data = path.read_bytes()
            total += len(data)
            if total > MAX_BYTES:
                raise TooLarge(f"the skill is larger than {MAX_BYTES} bytes")
            info = zipfile.ZipInfo(path.relative_to(folder).as_posix(), _WHEN)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (stat.S_IFREG | _mode(path.stat().st_mode)) << 16
            archive.writestr(info, data)
    return out.getvalue()


def unpack(data: bytes, target: Path) -> None:
    """Write the archive's files under a new folder; whatever could reach out of it is refused before that."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = _checked(archive.infolist())
            target.mkdir(parents=True)
            room = MAX_BYTES
            for info, place in members:
                room -= _write(archive, info, target / place, room)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError) as error:
        raise InvalidInput("the archive is damaged", code="bad_archive") from error
    except OSError as error:
        raise InvalidInput(f"the archive cannot be unpacked: {error.strerror}", code="bad_archive") from error


def edited(data: bytes | None, files: Mapping[str, str | None]) -> bytes:
    """An archive with some of its files as these texts, or without them; whether it may be unpacked is asked
    where it is."""
    members: dict[str, tuple[int, bytes]] = {}
    if data is not None:
        with zipfile.ZipFile(io.BytesIO(data)) as before:
            members = {one.filename: (one.external_attr, before.read(one)) for one in before.infolist()}
    for name, text in files.items():
        mode = members.pop(name, ((stat.S_IFREG | 0o644) << 16, b""))[0]
        if text is not None:
            members[name] = (mode, text.encode())
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as after:
        for name in sorted(members):
            info = zipfile.ZipInfo(name, _WHEN)
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, members[name][0]
            after.writestr(info, members[name][1])
    return out.getvalue()


def texts(data: bytes) -> dict[str, str]:
    """The archive's files by name, for people to read; of what is no text, its size and checksum."""
    with tempfile.TemporaryDirectory() as draft:
        folder = Path(draft) / "files"
        unpack(data, folder)
        return {path.relative_to(folder).as_posix(): _readable(path.read_bytes()) for path in _files(folder)}


def _readable(data: bytes) -> str:
    try:
        if b"\0" not in data:
            return data.decode()
    except UnicodeDecodeError:
        pass
    return f"({len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()})"


def digest(folder: Path) -> str:
    """Names the contents of a folder, so that later edits can be seen."""
    found = hashlib.sha256()
    for path in _files(folder):
        name = path.relative_to(folder).as_posix()
        found.update(f"{len(name)}:{name}".encode())
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def _files(folder: Path) -> list[Path]:
    """Hidden files stay behind; a link is an error, since what it leads to is not the skill's."""
    found: list[Path] = []
    for path in sorted(folder.rglob("*")):
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        if path.is_symlink():
            raise InvalidInput(f"{path} is a link", hint="Put the file itself into the skill.")
        if path.is_file():
            found.append(path)
    if len(found) > MAX_FILES:
        raise TooLarge(f"the skill has more than {MAX_FILES} files")
    return found


def _checked(infos: list[zipfile.ZipInfo]) -> list[tuple[zipfile.ZipInfo, PurePosixPath]]:
    if len(infos) > MAX_FILES:
        raise TooLarge(f"the archive has more than {MAX_FILES} files")
    members = [(info, _place(info)) for info in infos if not info.is_dir()]
    names = [str(place).casefold() for _, place in members]
    if len(set(names)) != len(names):
        raise _bad("two files have one name")
    if PurePosixPath(FILE) not in [place for _, place in members]:
        raise _bad(f"there is no {FILE} in it")
    return members


def _place(info: zipfile.ZipInfo) -> PurePosixPath:
    name = info.filename
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise _bad(f"{name[:80]!r} is not a plain file")
    path = PurePosixPath(name)
    odd = "\\" in name or ":" in name or not name.isprintable() or name.startswith("/")
    if odd or any(part in ("..", ".") or part.startswith(".") for part in name.split("/")):
        raise _bad(f"{name[:80]!r} is not a name for a file of a skill")
    return path


def _write(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path, room: int) -> int:
    """Counts what really comes out: the sizes that an archive states may be lies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with archive.open(info) as source, path.open("xb") as file:
        while chunk := source.read(_CHUNK):
            written += len(chunk)
            if written > room:
                raise TooLarge(f"the archive unpacks to more than {MAX_BYTES} bytes", code="bad_archive")
            file.write(chunk)
    path.chmod(_mode(info.external_attr >> 16))
    return written


def _mode(mode: int) -> int:
    return 0o755 if mode & 0o100 else 0o644


def _bad(reason: str) -> InvalidInput:
    return InvalidInput(f"the archive is refused: {reason}", code="bad_archive")
