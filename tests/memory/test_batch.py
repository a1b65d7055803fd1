"""OpenAI's batch API against a server on loopback that speaks it: the real client, real HTTP, a real file."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from conftest_memory import Desk

from holdfast.errors import Conflict
from holdfast.memory.embedders.batch import BatchIndexing
from holdfast.memory.embedders.remote import OPENAI, EmbeddingFailed, Endpoint, RemoteEmbedder
from holdfast.memory.embedders.static import StaticEmbedder
from holdfast.memory.embedding import EmbedderChain


class BatchServer:
    """Files and batches as OpenAI has them. `finish` does the work of the batches that were made."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        self.direct: list[list[str]] = []
        self.refuses = 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self._answer(server.post(self.path, dict(self.headers), self._body()))

            def do_GET(self) -> None:
                self._answer(server.get(self.path))

            def _body(self) -> bytes:
                return self.rfile.read(int(self.headers["content-length"]))

            def _answer(self, answer: tuple[int, bytes]) -> None:
                self.send_response(answer[0])
                self.send_header("Content-Length", str(len(answer[1])))
                self.end_headers()
                self.wfile.write(answer[1])

            def log_message(self, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}/v1"

    def post(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        if headers.get("Authorization") != "Bearer secret":
            return 401, b"{}"
        if path == "/v1/files":
            assert b'name="purpose"\r\n\r\nbatch' in body
            found = re.search(rb"application/jsonl\r\n\r\n(.*)\r\n--", body, re.S)
            assert found is not None
            name = f"file-{len(self.files)}"
            self.files[name] = found[1]
            return 200, json.dumps({"id": name}).encode()
        given = json.loads(body)
        if path == "/v1/embeddings":
            self.direct.append(given["input"])
            rows = [{"index": n, "embedding": [1.0, 0.0, 0.0]} for n, _ in enumerate(given["input"])]
            return 200, json.dumps({"data": rows}).encode()
        assert (given["endpoint"], given["completion_window"]) == ("/v1/embeddings", "24h")
        total = len(self.files[given["input_file_id"]].splitlines())
        made = {"id": f"batch_{len(self.batches)}", "status": "in_progress", "input": given["input_file_id"]}
        self.batches[str(made["id"])] = made | {"request_counts": {"total": total, "completed": 0}}
        return 200, json.dumps(made).encode()

    def get(self, path: str) -> tuple[int, bytes]:
        if path.startswith("/v1/batches/"):
            return 200, json.dumps(self.batches[path.rsplit("/", 1)[1]]).encode()
        return 200, self.files[path.split("/")[3]]

    def finish(self, status: str = "completed") -> None:
        for batch in self.batches.values():
            lines = [json.loads(line) for line in self.files[batch["input"]].splitlines()]
            done = lines[self.refuses :] if status == "completed" else []
            out = f"out-{batch['id']}"
            self.files[out] = "\n".join(json.dumps(_done(line)) for line in done).encode()
            counts = {"total": len(lines), "completed": len(done)}
            batch |= {"status": status, "output_file_id": out if done else None, "request_counts": counts}


def _done(line: dict[str, Any]) -> dict[str, Any]:
    assert (line["method"], line["url"]) == ("POST", "/v1/embeddings")
    (text,) = line["body"]["input"]
    body = {"data": [{"embedding": [float(len(text) % 7 + 1), 1.0, 0.0]}]}
    return {"custom_id": line["custom_id"], "response": {"status_code": 200, "body": body}, "error": None}


@pytest.fixture
def server() -> Iterator[BatchServer]:
    made = BatchServer()
    yield made
    made.http.shutdown()
    made.http.server_close()


@pytest.fixture
def filled(desk: Desk, static: StaticEmbedder, server: BatchServer) -> Desk:
    endpoint = Endpoint(server.url, "text-embedding-3-small", 3, "secret")
    desk.memory.chain = EmbedderChain([RemoteEmbedder(endpoint, OPENAI)], static)
    for number in range(5):
        desk.write(f"memory/{number}.md", f"Note {number}: the walrus {'and the heron ' * number}")
    desk.memory.update("main")
    return desk


def covered(desk: Desk) -> float:
    return float(desk.memory.status("main")["embedders"][0]["covered"])


def test_a_batch_is_sent_waited_for_and_taken_in_without_a_direct_request(
    filled: Desk, server: BatchServer
) -> None:
    offer = filled.memory.batches.offer()
    assert offer is not None
    assert (offer.texts, offer.model, offer.dollars) == (5, "text-embedding-3-small", None)
    assert filled.memory.batches.begin() == 5
    assert filled.memory.refine() == 0
    assert (covered(filled), server.direct) == (0.0, [])
    server.finish()
    assert filled.memory.refine() == 5
    assert (covered(filled), server.direct) == (1.0, [])
    assert not filled.memory.batches.pending()
    assert filled.ask("walrus").provider == "openai"


def test_nothing_is_sent_twice_while_a_batch_is_under_way(filled: Desk, server: BatchServer) -> None:
    filled.memory.batches.begin()
    with pytest.raises(Conflict):
        filled.memory.batches.begin()
    filled.write("memory/new.md", "The otter is back.")
    filled.memory.update("main")
    assert filled.memory.refine() == 0
    assert (len(server.batches), server.direct) == (1, [])


@pytest.mark.parametrize("status", ["failed", "expired", "cancelled"])
def test_what_a_batch_did_not_embed_is_embedded_directly(
    filled: Desk, server: BatchServer, status: str
) -> None:
    filled.memory.batches.begin()
    server.finish(status)
    progress = filled.memory.batches.collect()
    assert progress.problems == (f"batch batch_0 {status}: 0 of 5 texts were embedded",)
    assert filled.memory.refine() == 5
    assert sum(map(len, server.direct)) == 5


def test_single_texts_that_failed_are_embedded_directly(filled: Desk, server: BatchServer) -> None:
    server.refuses = 2
    filled.memory.batches.begin()
    server.finish()
    assert filled.memory.refine() == 5
    assert (covered(filled), sum(map(len, server.direct))) == (1.0, 2)


def test_a_price_is_told_for_openai_itself_at_half_of_what_it_takes_directly(
    filled: Desk, static: StaticEmbedder
) -> None:
    memory = filled.memory
    own = RemoteEmbedder(Endpoint("https://api.openai.com/v1", "text-embedding-3-large", None, "k"), OPENAI)
    chain = EmbedderChain([own], static)
    offer = BatchIndexing(memory.index, memory.catalogue, memory.catalogue, chain, filled.clock).offer()
    assert offer is not None
    assert offer.dollars == pytest.approx(offer.tokens * 0.13 / 2 / 1e6)


def test_a_server_without_batches_is_told_and_nothing_is_remembered(
    filled: Desk, static: StaticEmbedder, server: BatchServer
) -> None:
    wrong = RemoteEmbedder(Endpoint(server.url, "m", 3, "another key"), OPENAI)
    filled.memory.chain = EmbedderChain([wrong], static)
    with pytest.raises(EmbeddingFailed, match="/v1/files answered 401"):
        filled.memory.batches.begin()
    assert not filled.memory.batches.pending()
