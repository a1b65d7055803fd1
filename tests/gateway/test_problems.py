"""Whatever a caller sends, the answer is a problem with a stable code; never a 500. On both engines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving import Running, assert_problem

from holdfast.clock import ManualClock
from holdfast.gateway import bodies
from holdfast.gateway.bodies import MalformedJson
from holdfast.runtime import Holdfast, open_home

JSON = {"Content-Type": "application/json"}
MIB = 1024**2


@pytest.fixture
def hold(store_url: str, tmp_path: Path, clock: ManualClock) -> Iterator[Holdfast]:
    with open_home(tmp_path / "home", store_url=store_url, clock=clock) as opened:
        yield opened


def nested(levels: int) -> bytes:
    return b'{"content":"x","source":{"a":' + b"[" * levels + b"]" * levels + b"}}"


MALFORMED = {
    "cut off": b'{"content":',
    "not JSON": b"content=x",
    "invalid UTF-8": b'{"content":"\xff\xfe"}',
    "UTF-16": '{"content":"x"}'.encode("utf-16"),
    "doubled key": b'{"content":"a","content":"b"}',
    "doubled key inside": b'{"content":"a","source":{"x":1,"x":2}}',
    "NaN": b'{"content":"a","source":{"x":NaN}}',
    "past a float": b'{"content":"a","source":{"x":1e999}}',
    "past any integer": b'{"content":"a","source":{"x":' + b"9" * 5000 + b"}}",
    "trailing": b'{"content":"a"} {}',
}


def test_a_body_that_cannot_be_read_is_malformed(api: httpx.Client) -> None:
    for path in ("/api/log", "/api/ingest", "/api/login"):
        for body in MALFORMED.values():
            assert_problem(api.post(path, content=body, headers=JSON), 400, "malformed_json")
    assert api.get("/api/log").json() == []


def test_deep_nesting_is_refused_at_every_depth(api: httpx.Client) -> None:
    for levels in (100, 990, 5_000, 100_000):
        assert_problem(api.post("/api/log", content=nested(levels), headers=JSON), 422, "too_deep")
        assert_problem(api.patch("/api/config", content=nested(levels), headers=JSON), 422, "too_deep")
    assert api.post("/api/log", content=nested(50), headers=JSON).status_code == 201


WRONG: list[Any] = [
    None, [], "text", 1, {}, {"content": None}, {"content": 1}, {"content": ["x"]},
    {"content": "x", "type": "gossip"},
    {"content": "x", "source": "discord"},
    {"content": "x", "createdAt": "yesterday"},
    {"content": "x", "createdAt": -1},
    {"content": "x", "createdAt": 10**30},
    {"content": "x", "createdAt": "9999-12-31T23:59:59-23:00"},
    {"content": "x", "topicId": ""},
    {"content": "x", "topicId": "t" * 300},
    {"content": "x", "idempotencyKey": ""},
    {"content": "x", "source": {"sessionKey": "k" * 4000}},
]  # fmt: skip


def test_a_body_of_the_wrong_shape_is_invalid(api: httpx.Client) -> None:
    for body in WRONG:
        problem = assert_problem(api.post("/api/log", json=body), 422, "invalid_input")
        assert problem["errors"][0]["path"].startswith("body"), body
    assert_problem(api.post("/api/log"), 422, "invalid_input")
    assert_problem(api.post("/api/log", content=b"", headers=JSON), 422, "invalid_input")


def test_a_large_body_is_refused_with_and_without_a_length(api: httpx.Client) -> None:
    body = json.dumps({"content": "x" * 5 * MIB}).encode()

    def chunks() -> Iterator[bytes]:
        for start in range(0, len(body), 65_536):
            yield body[start : start + 65_536]

    assert_problem(api.post("/api/log", content=body, headers=JSON), 413, "too_large")
    assert_problem(api.post("/api/log", content=chunks(), headers=JSON), 413, "too_large")
    assert_problem(api.patch("/api/log/x", content=chunks(), headers=JSON), 413, "too_large")
    assert api.get("/api/log").json() == []


def test_the_limit_follows_the_config(gateway: Running, api: httpx.Client) -> None:
    body = {"content": "x" * 5000}
    assert api.post("/api/log", json=body).status_code == 201
    assert api.patch("/api/config", json={"gateway": {"limits": {"entryBytes": 4096}}}).status_code == 200
    assert_problem(api.post("/api/log", json=body), 413, "too_large")


def test_a_body_that_is_not_json_is_refused(api: httpx.Client) -> None:
    for kind in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "x",
        None,
    ):
        headers = {} if kind is None else {"Content-Type": kind}
        refused = api.post("/api/log", content=b'{"content":"x"}', headers=headers)
        assert_problem(refused, 415, "unsupported_media_type")
    good = {"Content-Type": "application/vnd.thing+json; charset=utf-8"}
    assert api.post("/api/log", content=b'{"content":"x"}', headers=good).status_code == 201


def test_what_is_not_there_is_a_problem_too(api: httpx.Client) -> None:
    assert_problem(api.get("/nowhere"), 404, "not_found")
    assert_problem(api.get("/api/log/"), 404, "not_found")
    assert_problem(api.get("/api/log/log-unknown"), 404, "unknown_entry")
    assert_problem(api.get("/api/sessions/agent:none:main"), 404, "unknown_session")
    assert_problem(api.get("/api/sessions/agent:none:main/turns"), 404, "unknown_session")
    assert_problem(api.post("/api/sessions/agent:none:main/reset"), 404, "unknown_session")
    assert_problem(api.put("/api/log", json={}), 405, "method_not_allowed")


BAD_QUERIES = [
    ("/api/log", {"cursor": "x"}, "bad_cursor"),
    ("/api/log", {"cursor": "1-" + "9" * 19}, "bad_cursor"),
    ("/api/log", {"limit": "0"}, "invalid_input"),
    ("/api/log", {"limit": "many"}, "invalid_input"),
    ("/api/log", {"limit": "9" * 5000}, "invalid_input"),
    ("/api/log", {"offset": "10001"}, "invalid_input"),
    ("/api/log", {"type": "x"}, "invalid_input"),
    ("/api/log", {"includeRaw": "perhaps"}, "invalid_input"),
    ("/api/log", {"relatedLogId": ",".join(map(str, range(501)))}, "invalid_input"),
    ("/api/changes", {"sinceSeq": str(2**63)}, "invalid_input"),
    ("/api/changes", {"cursor": str(2**63)}, "bad_cursor"),
    ("/api/changes", {"cursor": "٣"}, "bad_cursor"),
    ("/api/sessions", {"cursor": "10001"}, "bad_cursor"),
    ("/api/sessions", {"status": "x"}, "invalid_input"),
    ("/api/agenda", {"limit": "-1"}, "invalid_input"),
]


def test_a_bad_query_is_said_to_be_one(api: httpx.Client) -> None:
    for path, params, code in BAD_QUERIES:
        assert_problem(api.get(path, params=params), 422, code)
    for id_ in ("x", "-1", "9" * 30, "9" * 5000):
        assert_problem(api.get("/api/stream", headers={"Last-Event-ID": id_}), 422, "bad_event_id")


def test_a_huge_limit_is_cut_rather_than_refused(api: httpx.Client) -> None:
    for path in ("/api/log", "/api/changes", "/api/sessions", "/api/agenda"):
        assert api.get(path, params={"limit": 10**30}).status_code == 200


ODD = "a\u0000b\ud800c"


def test_odd_characters_in_any_string_are_mended_not_fatal(api: httpx.Client) -> None:
    names = [
        "content", "summary", "raw", "topicId", "taskId", "spaceId", "relatedLogId", "agentId", "agentLabel",
        "classificationCode", "idempotencyKey",
    ]  # fmt: skip
    body = dict.fromkeys(names, ODD) | {"source": {ODD: [ODD], "sessionKey": ODD}}
    made = api.post("/api/log", content=json.dumps(body), headers=JSON)
    assert made.status_code == 201, made.text
    unknown_places = {"topicId", "taskId", "spaceId", "classificationCode"}
    assert {made.json()[name] for name in names if name not in unknown_places} == {"a\ufffdb\ufffdc"}
    changed = api.patch(f"/api/log/{made.json()['id']}", content=json.dumps(body), headers=JSON)
    assert changed.status_code == 200, changed.text
    assert api.post("/api/ingest", content=json.dumps([body]), headers=JSON).status_code == 202
    assert_problem(
        api.patch("/api/config", content=json.dumps({ODD: ODD}), headers=JSON), 422, "invalid_config"
    )
    refused = api.post("/api/login", content=json.dumps({"token": ODD}), headers=JSON)
    assert_problem(refused, 422, "invalid_input")


def test_odd_characters_in_a_url_are_refused_or_find_nothing(api: httpx.Client) -> None:
    for path in ("/api/log/a%00b", "/api/sessions/%00/turns", "/api/log?topicId=a%00", "/api/log?%00=1"):
        assert_problem(api.get(path), 422, "invalid_input")
    for path in ("/api/log/%ff%fe", "/api/log/%ed%a0%80", "/api/sessions/%ff/turns"):
        assert api.get(path).status_code == 404
    for name in ("topicId", "sessionKey", "relatedLogId"):
        assert api.get(f"/api/log?{name}=%ed%a0%80%ff").json() == []


def test_a_failure_of_our_own_says_nothing_of_its_cause(
    gateway: Running, api: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a secret cause")

    monkeypatch.setattr("holdfast.log.entries.listing", broken)
    answer = api.get("/api/log")
    assert_problem(answer, 500, "internal")
    assert "secret" not in answer.text


finite = st.floats(allow_nan=False, allow_infinity=False)
plain = st.none() | st.booleans() | st.integers() | finite | st.text()
values = st.recursive(plain, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=15)


@given(values)
def test_every_json_value_is_read_as_it_was_written(value: Any) -> None:
    assert bodies.parse(json.dumps(value).encode()) == value


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_malformed(body: bytes) -> None:
    try:
        value = bodies.parse(body)
    except MalformedJson:
        return
    assert json.loads(body) == value
