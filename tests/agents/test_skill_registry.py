"""A registry is a folder that any web server gives out; what comes from it is checked and never run."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import stat
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast.agents.skills import (
    Registry,
    Tier,
    archive,
    install,
    installed,
    mark_of,
    publish,
    update,
    update_all,
)
from holdfast.agents.skills import registry as registry_module
from holdfast.agents.skills.registry import read_index, version_order
from holdfast.cli.root import cli
from holdfast.clock import ManualClock
from holdfast.errors import Conflict, InvalidInput, NotFound, TooLarge, Unavailable


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    return folder


@pytest.fixture
def url(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def managed(tmp_path: Path) -> Path:
    return tmp_path / "managed"


@pytest.fixture
def out(tmp_path: Path, site: Path, clock: ManualClock) -> Callable[..., Any]:
    """Publish a version of a skill, its text told by the version."""

    def put(name: str, version: str, **more: str) -> Any:
        folder = tmp_path / "drafts" / f"{name}-{version}"
        folder.mkdir(parents=True, exist_ok=True)
        text = (
            f"---\nname: {name}\ndescription: Helps with {name}.\nversion: {version}\n---\nAs of {version}.\n"
        )
        (folder / "SKILL.md").write_text(text)
        for path, body in more.items():
            (folder / path).write_text(body)
        return publish(folder, site, clock)

    return put


def test_the_registry_is_the_one_of_the_config(out: Callable[..., Any], url: str, tmp_path: Path) -> None:
    out("weather", "1.0.0")
    home = tmp_path / "home"
    home.mkdir()
    (home / "holdfast.json").write_text(json.dumps({"skills": {"registry": {"url": url}}}))
    told = CliRunner().invoke(cli, ["--home", str(home), "skills", "search", "weather"])
    assert (told.exit_code, "1.0.0" in told.output) == (0, True), told.output


def zipped(*members: tuple[str, bytes], kind: int = stat.S_IFREG) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        for name, data in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = (kind | 0o644) << 16
            file.writestr(info, data)
    return made.getvalue()


def offer(site: Path, name: str, data: bytes, **fields: Any) -> None:
    """An index with one release of these bytes, as an attacker could write it."""
    (site / "evil.zip").write_bytes(data)
    release = {"archive": "evil.zip", "sha256": hashlib.sha256(data).hexdigest(), "size": len(data), **fields}
    index = {"format": 1, "skills": {name: {"description": "x", "versions": {"1.0.0": release}}}}
    (site / "index.json").write_text(json.dumps(index))


HEAD = b"---\nname: evil\ndescription: x\n---\n"


def test_a_skill_is_published_found_installed_and_updated(
    out: Callable[..., Any], url: str, managed: Path
) -> None:
    out("notes", "1.0.0", **{"helper.py": "print(1)"})
    out("notes", "1.10.0")
    out("notes", "1.9.0")
    out("notes", "2.0.0-beta")
    out("weather", "0.1.0")
    registry = Registry(url)
    assert [(one.name, one.version) for one in registry.search()] == [
        ("notes", "1.10.0"),
        ("weather", "0.1.0"),
    ]
    assert [one.name for one in registry.search("HELPS weather")] == ["weather"]
    assert registry.search("nothing like it") == []
    first = install(registry, managed, "notes", version="1.0.0")
    assert (first.tier, first.body) == (Tier.MANAGED, "As of 1.0.0.")
    assert (managed / "notes" / "helper.py").read_text() == "print(1)"
    assert update(registry, managed, "notes").after == "1.10.0"
    assert not (managed / "notes" / "helper.py").exists()
    assert update(registry, managed, "notes").before == "1.10.0"
    install(registry, managed, "weather")
    out("weather", "0.2.0")
    done = {one.name: (one.before, one.after) for one in update_all(registry, managed)}
    assert done == {"notes": ("1.10.0", "1.10.0"), "weather": ("0.1.0", "0.2.0")}
    assert [one.version for one in installed(managed)] == ["1.10.0", "0.2.0"]
    assert sorted(path.name for path in managed.iterdir()) == ["notes", "weather"]
    with pytest.raises(NotFound):
        registry.find("notes", "9.9.9")
    with pytest.raises(NotFound):
        install(registry, managed, "unknown")


def test_a_version_that_is_out_never_changes(
    out: Callable[..., Any], tmp_path: Path, site: Path, clock: ManualClock
) -> None:
    first = out("notes", "1.0.0")
    assert out("notes", "1.0.0") == first
    folder = tmp_path / "drafts" / "notes-1.0.0"
    (folder / "SKILL.md").write_text((folder / "SKILL.md").read_text() + "more\n")
    with pytest.raises(Conflict, match="published already"):
        publish(folder, site, clock)
    assert publish(folder, site, clock, version="1.0.1").version == "1.0.1"
    with pytest.raises(InvalidInput, match="not a version"):
        publish(folder, site, clock, version="latest")
    with pytest.raises(NotFound):
        publish(tmp_path, site, clock)


def test_what_someone_edited_or_wrote_is_not_overwritten(
    out: Callable[..., Any], url: str, managed: Path
) -> None:
    out("notes", "1.0.0")
    registry = Registry(url)
    (managed / "notes").mkdir(parents=True)
    (managed / "notes" / "SKILL.md").write_text("mine")
    with pytest.raises(Conflict, match="did not come from a registry"):
        install(registry, managed, "notes")
    assert (managed / "notes" / "SKILL.md").read_text() == "mine"
    install(registry, managed, "notes", force=True)
    (managed / "notes" / "SKILL.md").write_text("edited")
    out("notes", "1.1.0")
    (told,) = update_all(registry, managed)
    assert "edited since" in (told.error or "")
    assert (managed / "notes" / "SKILL.md").read_text() == "edited"
    assert update(registry, managed, "notes", force=True).after == "1.1.0"


def test_an_archive_with_another_checksum_or_size_is_refused(
    out: Callable[..., Any], url: str, site: Path, managed: Path
) -> None:
    release = out("notes", "1.0.0")
    path = site / release.archive
    good = path.read_bytes()
    for bad in (good[:-1] + bytes([good[-1] ^ 1]), good + b"x", good[:-1], zipped(("SKILL.md", HEAD))):
        path.write_bytes(bad)
        with pytest.raises((InvalidInput, TooLarge)):
            install(Registry(url), managed, "notes")
        assert not (managed / "notes").exists()
    path.write_bytes(good)
    assert install(Registry(url), managed, "notes").name == "notes"


@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "/etc/evil",
        "a/../../evil",
        "..\\evil",
        "C:evil",
        "a/./b",
        ".hidden",
        "a/.git/config",
        "x\ny",
        "a//b/../c",
    ],
)
def test_a_name_that_reaches_out_of_the_archive_is_refused(
    url: str, site: Path, managed: Path, tmp_path: Path, name: str
) -> None:
    before = sorted(tmp_path.rglob("*"))
    offer(site, "evil", zipped(("SKILL.md", HEAD), (name, b"x")))
    with pytest.raises(InvalidInput, match="refused") as caught:
        install(Registry(url), managed, "evil")
    assert caught.value.code == "bad_archive"
    now = {path for path in tmp_path.rglob("*") if path.name not in ("index.json", "evil.zip", "managed")}
    assert now <= set(before)


@pytest.mark.parametrize(
    "data",
    [
        zipped(("SKILL.md", b"/etc/passwd"), kind=stat.S_IFLNK),
        zipped(("SKILL.md", HEAD), ("skill.MD", HEAD)),
        zipped(("inner/SKILL.md", HEAD)),
        zipped(("SKILL.md", b"no head")),
        zipped(("SKILL.md", HEAD.replace(b"evil", b"good"))),
        zipped(("SKILL.md", b"\xff\xfe")),
        b"not a zip",
        zipped(("SKILL.md", HEAD))[:-10],
        zipped(*[(f"f{n}", b"") for n in range(600)], ("SKILL.md", HEAD)),
        zipped(("SKILL.md", HEAD), ("a", b""), ("a/b", b"")),
        zipped(("SKILL.md", HEAD), ("n" * 300, b"")),
    ],
    ids=[
        "link",
        "two-alike",
        "no-root",
        "broken",
        "another-name",
        "not-text",
        "no-zip",
        "cut",
        "too-many",
        "folder-and-file",
        "too-long",
    ],
)
def test_an_archive_that_is_not_a_skill_is_refused(url: str, site: Path, managed: Path, data: bytes) -> None:
    offer(site, "evil", data)
    with pytest.raises((InvalidInput, TooLarge)):
        install(Registry(url), managed, "evil")
    assert mark_of(managed, "evil") is None
    assert not managed.exists() or list(managed.iterdir()) == []


def test_an_archive_that_unpacks_without_end_is_refused(
    url: str, site: Path, managed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MAX_BYTES", 100_000)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("SKILL.md", HEAD)
        file.writestr("zeros", b"\0" * 5_000_000)
    assert len(made.getvalue()) < 20_000
    offer(site, "evil", made.getvalue())
    with pytest.raises(TooLarge):
        install(Registry(url), managed, "evil")
    assert list(managed.iterdir()) == []


def test_an_index_that_lies_about_sizes_does_not_make_us_read_more(
    url: str, site: Path, managed: Path
) -> None:
    offer(site, "evil", zipped(("SKILL.md", HEAD)), size=10)
    with pytest.raises(TooLarge):
        install(Registry(url), managed, "evil")
    offer(site, "evil", zipped(("SKILL.md", HEAD)), size=10**12)
    with pytest.raises(TooLarge):
        install(Registry(url), managed, "evil")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2, "skills": {}}', '{"format": 1}', "<html>"])
def test_what_is_no_index_is_told(url: str, site: Path, text: str) -> None:
    (site / "index.json").write_text(text)
    with pytest.raises(Unavailable):
        Registry(url).search()


def test_entries_that_are_not_whole_are_left_out() -> None:
    good = {"archive": "a.zip", "sha256": "0" * 64, "size": 1}
    odd = {"1.0": good, "1.0.0": {**good, "sha256": "x"}, "1.0.1": {**good, "size": "1"}, "1.0.2": 3}
    index = {"a": {"versions": {**odd, "2.0.0": good}}, "../b": {"versions": {"1.0.0": good}}, "c": []}
    found = read_index({"format": 1, "skills": index})
    assert {name: [one.version for one in releases] for name, releases in found.items()} == {"a": ["2.0.0"]}


@pytest.mark.parametrize(
    "address", ["http://example.org", "ftp://127.0.0.1", "file:///etc", "https://u:p@example.org", "x", ""]
)
def test_a_registry_is_reached_by_https_or_on_this_machine(address: str) -> None:
    with pytest.raises(InvalidInput):
        Registry(address)


def test_an_archive_elsewhere_must_be_safe_to_reach_too(url: str, site: Path, managed: Path) -> None:
    data = zipped(("SKILL.md", HEAD))
    for address in ("file:///etc/passwd", "http://10.0.0.1/evil.zip", "ftp://127.0.0.1/x"):
        offer(site, "evil", data, archive=address)
        with pytest.raises(InvalidInput):
            install(Registry(url), managed, "evil")


def test_a_registry_elsewhere_does_not_make_us_ask_this_machine(url: str, site: Path) -> None:
    data = zipped(("SKILL.md", HEAD))
    offer(site, "evil", data)
    release = replace(Registry(url).find("evil"), archive=f"{url}/evil.zip")
    assert Registry(url).download(release) == data
    with pytest.raises(InvalidInput, match="not the address"):
        Registry("https://registry.example").download(release)


def test_a_registry_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Drip(Quiet):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                while not over.wait(0.01):
                    self.wfile.write(b" ")

    over = threading.Event()
    monkeypatch.setattr(registry_module, "_LONGEST", 0.2)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Drip)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with pytest.raises(Unavailable, match="too slowly"):
            Registry(f"http://127.0.0.1:{server.server_address[1]}").index()
    finally:
        over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def test_versions_have_an_order() -> None:
    ordered = [
        "0.9.0",
        "1.0.0-alpha",
        "1.0.0-alpha.1",
        "1.0.0-beta.2",
        "1.0.0-beta.11",
        "1.0.0",
        "1.2.0",
        "1.10.0",
    ]
    backwards = ordered[::-1]
    assert sorted(backwards, key=version_order) == ordered


def test_the_same_folder_gives_the_same_archive(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    (folder / "bin").mkdir(parents=True)
    (folder / "SKILL.md").write_bytes(HEAD)
    (folder / "bin" / "run.sh").write_text("echo")
    (folder / "bin" / "run.sh").chmod(0o755)
    (folder / ".env").write_text("SECRET=1")
    data = archive.pack(folder)
    assert data == archive.pack(folder)
    archive.unpack(data, tmp_path / "t")
    assert archive.digest(folder) == archive.digest(tmp_path / "t")
    assert not (tmp_path / "t" / ".env").exists()
    assert (tmp_path / "t" / "bin" / "run.sh").stat().st_mode & 0o777 == 0o755
    (folder / "link").symlink_to("/etc/passwd")
    with pytest.raises(InvalidInput, match="link"):
        archive.pack(folder)


def test_the_command_line_goes_the_whole_way(tmp_path: Path, url: str, site: Path) -> None:
    def run(*args: object, **options: Any) -> Result:
        return CliRunner().invoke(cli, ["--home", str(tmp_path / "home"), *map(str, args)], **options)

    (tmp_path / "home").mkdir()
    source = tmp_path / "mine"
    source.mkdir()
    install_spec = '{"holdfast": {"always": true, "install": [{"kind": "apt", "package": "cowsay"}]}}'
    text = f"---\nname: mine\ndescription: My own.\nmetadata: {install_spec}\n---\nDo it.\n"
    (source / "SKILL.md").write_text(text)
    assert run("skills", "publish", source, "--to", site, "--version", "1.0.0").exit_code == 0
    assert run("skills", "publish", source, "--to", site).exit_code == 2
    found = json.loads(run("skills", "search", "own", "--registry", url, "--json").stdout)
    assert [one["name"] for one in found] == ["mine"]
    done = run("skills", "install", "mine", "--registry", url)
    assert "--deps" in done.stdout
    assert "My own" in run("skills", "info", "mine").stdout
    assert run("skills", "publish", source, "--to", site, "--version", "1.1.0").exit_code == 0
    (told,) = json.loads(run("skills", "update", "--all", "--registry", url, "--json").stdout)
    assert (told["before"], told["after"]) == ("1.0.0", "1.1.0")
    assert run("skills", "update", "--registry", url).exit_code == 2
    refused = run("skills", "install", "mine", "--deps", input="n\n")
    if refused.exit_code == 0:
        assert "apt-get install" in refused.stdout
        assert "Nothing was run" in refused.stdout
