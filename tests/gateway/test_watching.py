"""How the gateway is watched: health, metrics, spans and its own log."""

from __future__ import annotations

import io
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families
from serving import Running, assert_problem, make_token, wait_for

from holdfast import logs
from holdfast.agents.approvals import audit
from holdfast.clock import ManualClock
from holdfast.config.runtime import LoggingConfig
from holdfast.errors import ConfigError, Unavailable
from holdfast.home import Home
from holdfast.log import SYSTEM, agenda
from holdfast.runtime import Holdfast


def test_health_needs_no_token_and_tells_nothing_else(gateway: Running) -> None:
    with gateway.client() as nobody:
        assert nobody.get("/healthz").json().keys() == {"status", "version"}
        assert nobody.get("/healthz?ready=1").status_code == 200


def test_a_gateway_whose_store_is_down_lives_but_is_not_ready(
    gateway: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down() -> None:
        raise Unavailable("the database cannot be reached", code="store_unreachable")

    monkeypatch.setattr(gateway.hold.store, "probe", down)
    with gateway.client() as nobody:
        assert nobody.get("/healthz").status_code == 200
        assert_problem(nobody.get("/healthz?ready=1"), 503, "store_unreachable")


def samples(api: httpx.Client, name: str) -> list[Any]:
    families = text_string_to_metric_families(api.get("/metrics").text)
    return [sample for family in families for sample in family.samples if sample.name == name]


def test_metrics_count_by_route_and_never_by_what_a_caller_wrote(gateway: Running, api: httpx.Client) -> None:
    for n in range(20):
        api.get(f"/api/log/log-{n}")
        api.get(f"/nowhere/{n}")
        api.put(f"/api/sessions/{n}")
    api.post("/api/log", json={"content": "x"})
    wait_for(lambda: sum(s.value for s in samples(api, "holdfast_http_requests_total")) >= 61)
    counted = samples(api, "holdfast_http_requests_total")
    labels = {(s.labels["method"], s.labels["route"], s.labels["status"]): s.value for s in counted}
    assert labels["GET", "/api/log/{id}", "404"] == 20
    assert labels["GET", "unmatched", "404"] == 20
    assert labels["POST", "/api/log", "201"] == 1
    assert len(labels) < 10
    assert samples(api, "holdfast_log_position")[0].value == 1
    assert {s.labels["status"] for s in samples(api, "holdfast_agenda_items")} == {"queued", "running"}


@pytest.mark.anyio
async def test_an_invented_method_is_no_label(gateway: Running) -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(gateway.app), base_url="http://x") as client:
        for n in range(5):
            await client.request(f"BREW{n}", "/api/log")
    with gateway.client(gateway.admin) as api:
        methods = {s.labels["method"] for s in samples(api, "holdfast_http_requests_total")}
    assert methods <= {"other", "GET"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Spans as they are exported, without touching the provider of the whole process."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("holdfast.gateway.metrics.trace.get_tracer", provider.get_tracer)
    return exporter


def test_each_request_is_a_span_under_that_of_its_caller(
    spans: InMemorySpanExporter, gateway: Running
) -> None:
    trace_id, parent_id = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    with gateway.client(gateway.admin, traceparent=f"00-{trace_id}-{parent_id}-01") as api:
        api.get("/api/log/log-1")
        api.get("/healthz")
    wait_for(lambda: len(spans.get_finished_spans()) == 2)
    one, two = spans.get_finished_spans()
    assert (one.name, two.name) == ("holdfast.http", "holdfast.http")
    assert one.attributes is not None
    assert one.attributes["http.route"] == "/api/log/{id}"
    assert one.attributes["http.response.status_code"] == 404
    assert one.attributes["http.request.method"] == "GET"
    assert one.parent is not None
    assert (f"{one.context.trace_id:032x}", f"{one.parent.span_id:016x}") == (trace_id, parent_id)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    found = Home(tmp_path / "home")
    found.prepare()
    level = logging.getLogger().level
    yield found
    logs.close()
    logging.getLogger().setLevel(level)


def lines(home: Home) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (home.logs / logs.FILE).read_text().splitlines()]


def test_the_log_is_text_for_people_and_json_for_programs(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure(LoggingConfig(), home)
    logging.getLogger("holdfast.x").info("hello %s", "there", extra={"data": {"status": 201}})
    logging.getLogger("holdfast.x").debug("too quiet")
    (line,) = lines(home)
    assert line.keys() == {"ts", "level", "logger", "message", "status"}
    assert (line["level"], line["logger"], line["message"], line["status"]) == (
        "info", "holdfast.x", "hello there", 201,
    )  # fmt: skip
    shown = capsys.readouterr().err
    assert "hello there" in shown
    assert "{" not in shown


SECRETS = [
    "hf_06W8P04GvGeviGb6MyvITqFnsI7mgKIevuhjw2pAask",
    "sk-ant-abcdefghijkl0123456789",
    "ghp_abcdefghijklmnop1234",
    "xoxb-1234567890-abcdef",
    "Bearer abc.def.ghi-jkl",
    "postgresql://user:hunter2secret@host/db",
    "/api/log?token=opensesame1",
    '{"password": "opensesame1"}',
    "Authorization: Basic b3BlbnNlc2FtZTE=",
    "X-Holdfast-Token: opensesame1",
    "house-17-private",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEvQIBADANBg\n-----END RSA PRIVATE KEY-----",
]
HIDDEN = (
    "06W8P04",
    "abcdefghijkl",
    "1234567890-abcdef",
    "def.ghi",
    "hunter2",
    "opensesame",
    "b3Blbn",
    "house-17",
    "MIIEvQ",
)


def test_no_secret_lands_in_the_log(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    options = LoggingConfig.model_validate({"redactPatterns": [r"house-\d+-\w+"]})
    logs.configure(options, home)
    log = logging.getLogger("holdfast.x")
    for secret in [*SECRETS, home.admin_token(), home.secret("cookie_key")]:
        log.warning("before %s after", secret, extra={"data": {"seen": secret, "deep": [{"in": secret}]}})
        try:
            raise ValueError(f"cannot use {secret}")
        except ValueError:
            log.exception("it failed")
    written = (home.logs / logs.FILE).read_text() + capsys.readouterr().err
    for hidden in (*HIDDEN, home.admin_token(), home.secret("cookie_key")):
        assert hidden not in written
    assert "house-17" not in audit.masked("curl house-17-private")
    assert written.count("before ") >= 2 * len(SECRETS)
    assert "host/db" in written


def test_words_that_only_look_a_little_like_secrets_stay() -> None:
    redact = logs.redactor()
    for text in ("token 'x' may read", "at http://host:8787/api", "maxTokens=4000 of 200000", "a task-force"):
        assert redact(text) == text


def test_the_file_is_rotated_and_only_so_many_are_kept(home: Home) -> None:
    logs.configure(LoggingConfig.model_validate({"maxBytes": 1024, "keepFiles": 2}), home)
    for n in range(100):
        logging.getLogger("holdfast.x").warning("line %d of many", n)
    assert sorted(p.name for p in home.logs.iterdir()) == [logs.FILE, f"{logs.FILE}.1", f"{logs.FILE}.2"]
    assert lines(home)[-1]["message"] == "line 99 of many"


def test_a_pattern_that_is_none_is_named(home: Home) -> None:
    with pytest.raises(ConfigError, match="redactPatterns"):
        logs.configure(LoggingConfig.model_validate({"redactPatterns": ["(open"]}), home)


def test_what_callers_send_does_not_land_in_the_log(hold: Holdfast, gateway: Running) -> None:
    logs.configure(LoggingConfig(level="debug"), hold.home)
    text = make_token(hold.store, "careful")
    try:
        with gateway.client() as client:
            client.get(f"/api/log?token={text}")
            client.get("/api/log", headers={"X-Clawboard-Token": text})
            client.post("/api/login", json={"token": text})
            client.post("/api/login", json={"token": gateway.admin})
            client.get(f"/api/log/{gateway.admin}")
    finally:
        logs.close()
        logging.getLogger().setLevel(logging.WARNING)
    written = (hold.home.logs / logs.FILE).read_text()
    assert '"route": "/api/login"' in written
    assert text not in written
    assert gateway.admin not in written


def test_what_is_old_or_too_much_in_the_logs_is_swept(hold: Holdfast, clock: ManualClock) -> None:
    folder = hold.home.logs
    ages = {"gateway.jsonl": 0, "gateway.jsonl.1": 5, "trajectory/a.jsonl": 40, "trajectory/b.jsonl": 10}
    for name, days in ages.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * 1000)
        os.utime(path, (clock.now() / 1000 - days * 86_400,) * 2)
    assert logs.sweep(folder, LoggingConfig(), clock.now()) == 1
    assert not (folder / "trajectory/a.jsonl").exists()
    small = LoggingConfig.model_validate({"totalBytes": 2500})
    assert logs.sweep(folder, small, clock.now()) == 1
    assert {path.name for path in folder.rglob("*") if path.is_file()} == {"gateway.jsonl", "gateway.jsonl.1"}


def test_a_gateway_sweeps_its_logs_by_itself(hold: Holdfast, gateway: Running, clock: ManualClock) -> None:
    old = hold.home.logs / "trajectory" / "old.jsonl"
    old.parent.mkdir(exist_ok=True)
    old.write_text("{}")
    os.utime(old, (clock.now() / 1000 - 31 * 86_400,) * 2)
    clock.advance(hours=2)
    with hold.store.write(SYSTEM, ordered=False) as tx:
        tx.wake(agenda.SIGNAL)
    wait_for(lambda: not old.exists())


def test_an_error_that_comes_again_and_again_is_told_once_and_then_counted() -> None:
    now = [0.0]
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(logs.Repeats(now=lambda: now[0]))
    logger = logging.Logger("part")
    logger.addHandler(handler)

    def fail(why: str, item: int) -> None:
        try:
            raise OSError(why)
        except OSError:
            logger.exception("item %d failed", item)

    for n in range(50):
        fail("the disk is full", n)
    assert stream.getvalue().count("Traceback") == 1
    fail("another", 50)
    now[0] = logs.REPEAT_SECONDS
    fail("the disk is full", 51)
    assert stream.getvalue().count("Traceback") == 2
    assert "item 51 failed: the disk is full (the same error 49 times more)" in stream.getvalue()
    logger.warning("said as often as it is said")
    logger.warning("said as often as it is said")
    assert stream.getvalue().count("said as often") == 2
