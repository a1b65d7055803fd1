"""Attachments: what is taken, what is refused, and how a file comes back."""

from __future__ import annotations

import hashlib

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving import Running, assert_problem, make_token

from holdfast.errors import InvalidInput
from holdfast.gateway.bodies import boundary_of, parts

PNG = b"\x89PNG\r\n\x1a\n" + b"rest of a picture"


def send(api: httpx.Client, *files: tuple[str, bytes, str], **params: str) -> httpx.Response:
    return api.post("/api/attachments", files=[("files", file) for file in files], params=params)


def test_files_come_back_as_they_were_sent(api: httpx.Client) -> None:
    answer = send(api, ("a.png", PNG, "image/png"), ("../etc/nötes.md", b"# hi\r\n--x", "text/markdown"))
    assert answer.status_code == 201, answer.text
    picture, notes = answer.json()
    assert picture["sha256"] == hashlib.sha256(PNG).hexdigest()
    assert (picture["sizeBytes"], picture["mimeType"], picture["logId"]) == (len(PNG), "image/png", None)
    assert notes["fileName"] == "nötes.md"
    got = api.get(f"/api/attachments/{notes['id']}")
    assert got.content == b"# hi\r\n--x"
    assert got.headers["x-content-type-options"] == "nosniff"
    assert got.headers["content-disposition"].startswith("attachment; filename*=UTF-8''n%C3%B6tes")
    assert "sandbox" in got.headers["content-security-policy"]
    shown = api.get(f"/api/attachments/{picture['id']}")
    assert (shown.headers["content-type"], shown.content) == ("image/png", PNG)
    assert shown.headers["content-disposition"].startswith("inline")


def test_the_same_content_is_kept_once_and_goes_with_its_last_attachment(
    gateway: Running, api: httpx.Client
) -> None:
    first, second = (send(api, ("a.png", PNG, "image/png")).json()[0] for _ in range(2))
    kept = [p for p in (gateway.hold.home.path / "attachments").rglob("*") if p.is_file()]
    assert [path.name for path in kept] == [first["sha256"]]
    assert kept[0].stat().st_mode & 0o077 == 0
    api.delete(f"/api/attachments/{first['id']}")
    assert api.get(f"/api/attachments/{second['id']}").content == PNG
    api.delete(f"/api/attachments/{second['id']}")
    assert not kept[0].exists()
    assert_problem(api.get(f"/api/attachments/{second['id']}"), 404, "unknown_attachment")


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("a.png", b"<script>", "image/png"),
        ("a.svg", b"<svg/>", "image/svg+xml"),
        ("a.html", b"<p>", "text/html"),
        ("a.exe", b"MZ", "application/octet-stream"),
        ("a.txt", b"\xff\xfe\x00", "text/plain"),
        ("a.txt", b"a\0b", "text/plain"),
    ],
)
def test_what_is_not_what_it_says_or_not_allowed_is_refused(
    api: httpx.Client, name: str, data: bytes, kind: str
) -> None:
    assert_problem(send(api, (name, data, kind)), 415, "unsupported_media_type")
    mixed = send(api, ("ok.png", PNG, "image/png"), (name, data, kind))
    assert_problem(mixed, 415, "unsupported_media_type")


def test_there_are_limits(gateway: Running, api: httpx.Client) -> None:
    limits = api.get("/api/attachments/policy").json()
    assert (limits["maxFiles"], limits["maxBytes"]) == (8, 10 * 1024**2)
    assert "image/svg+xml" not in limits["allowedMimeTypes"]
    big = b"x" * (limits["maxBytes"] + 1)
    assert_problem(send(api, ("a.txt", big, "text/plain")), 413, "too_large")
    assert send(api, ("a.txt", big[:-1], "text/plain")).status_code == 201
    nine = [(f"{n}.txt", b"x", "text/plain") for n in range(9)]
    assert_problem(send(api, *nine), 422, "too_many_files")
    assert_problem(send(api, ("a.txt", b"", "text/plain")), 422, "empty_file")
    assert_problem(api.post("/api/attachments", json={}), 400, "malformed_form")


def test_who_may_see_a_file_is_who_sees_its_entry_or_space(gateway: Running, api: httpx.Client) -> None:
    for name in ("Mine", "Other"):
        api.post("/api/spaces", json={"name": name})
    token = make_token(gateway.hold.store, "narrow", spaces=["space-mine"])
    log = api.post("/api/log", json={"content": "x", "spaceId": "space-mine"}).json()["id"]
    png = ("a.png", PNG, "image/png")
    by_log = send(api, png, logId=log).json()[0]["id"]
    other = send(api, png, spaceId="space-other").json()[0]["id"]
    loose = send(api, png).json()[0]["id"]
    with gateway.client(token) as limited:
        assert limited.get(f"/api/attachments/{by_log}").content == PNG
        for hidden in (other, loose):
            assert_problem(limited.get(f"/api/attachments/{hidden}"), 404, "unknown_attachment")
            assert_problem(limited.delete(f"/api/attachments/{hidden}"), 404, "unknown_attachment")
        assert_problem(send(limited, png), 403, "space_forbidden")
        assert_problem(send(limited, png, spaceId="space-other"), 403, "space_forbidden")
        assert send(limited, png, spaceId="space-mine").status_code == 201
    assert_problem(send(api, png, spaceId="space-nowhere"), 404, "unknown_space")
    assert_problem(send(api, png, logId="log-nowhere"), 404, "unknown_entry")


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=4))
def test_a_form_is_read_as_it_was_written(contents: list[bytes]) -> None:
    request = httpx.Request("POST", "http://x/", files=[("f", ("n", one, "text/plain")) for one in contents])
    body = request.read()
    found = list(parts(body, boundary_of(request.headers["content-type"]), most=4))
    assert [body[part.start : part.end] for part in found] == contents


@given(st.binary(max_size=200), st.integers(0, 300))
def test_a_broken_form_is_refused_and_nothing_worse(noise: bytes, cut: int) -> None:
    whole = b'--b\r\ncontent-disposition: form-data; name="f"; filename="n"\r\n\r\nx\r\n--b--\r\n'
    for body in (noise, whole[:cut] + noise, b"--b" + noise):
        try:
            for part in parts(body, b"b", most=4):
                assert 0 <= part.start <= part.end <= len(body)
        except InvalidInput:
            continue
