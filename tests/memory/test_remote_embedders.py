"""Provider code against a scripted server on loopback: the real client, real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from builders import PATIENCE
from holdfast.memory.embedders.base import EmbedderId, Vectors
from holdfast.memory.embedders.remote import GEMINI, OPENAI, EmbeddingFailed, Endpoint, RemoteEmbedder
from holdfast.memory.embedding import EmbedderChain

Answer = tuple[int, dict[str, str], bytes]
Script = Callable[[str, dict[str, Any]], Answer]


class Provider:
    """Answers by a script, one step a request; the last step repeats."""

    def __init__(self, steps: list[Script]) -> None:
        self.steps = steps
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                provider.requests.append((self.path, dict(self.headers), body))
                step = provider.steps[min(len(provider.requests), len(provider.steps)) - 1]
                status, headers, data = step(self.path, body)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/v1"


@pytest.fixture
def provider() -> Iterator[Callable[..., Provider]]:
    made: list[Provider] = []

    def start(*steps: Script) -> Provider:
        made.append(Provider(list(steps)))
        return made[-1]

    yield start
    for one in made:
        one.server.shutdown()
        one.server.server_close()


def vectors(dims: int = 3, short: int = 0) -> Script:
    def answer(_: str, body: dict[str, Any]) -> Answer:
        count = len(body["input"]) - short
        rows = [
            {"index": n, "embedding": [float(n + 1)] + [0.0] * (dims - 1)} for n in reversed(range(count))
        ]
        return 200, {}, json.dumps({"data": rows}).encode()

    return answer


def fails(status: int, **headers: str) -> Script:
    return lambda path, body: (status, {k.replace("_", "-"): v for k, v in headers.items()}, b"{}")


def embedder(one: Provider, waits: list[float] | None = None, **options: Any) -> RemoteEmbedder:
    slept = [] if waits is None else waits
    endpoint = Endpoint(one.url, "text-embedding-3-small", options.pop("dims", 3), "secret", **options)
    return RemoteEmbedder(endpoint, OPENAI, sleep=slept.append)


def test_vectors_come_back_in_the_order_of_the_texts_and_of_length_one(
    provider: Callable[..., Provider],
) -> None:
    one = provider(vectors())
    made = embedder(one).embed_documents(["a", "b", "c"])
    assert made.shape == (3, 3)
    assert np.allclose(np.linalg.norm(made, axis=1), 1)
    path, headers, body = one.requests[0]
    assert (path, headers["Authorization"]) == ("/v1/embeddings", "Bearer secret")
    assert body["input"] == ["a", "b", "c"]
    assert body["dimensions"] == 3


def test_many_texts_are_sent_in_batches(provider: Callable[..., Provider]) -> None:
    one = provider(vectors())
    assert embedder(one, batch=4).embed_documents([str(n) for n in range(10)]).shape == (10, 3)
    assert [len(body["input"]) for _, _, body in one.requests] == [4, 4, 2]


def test_a_rate_limit_is_waited_for_as_long_as_it_says(provider: Callable[..., Provider]) -> None:
    waits: list[float] = []
    one = provider(fails(429, Retry_After="7"), fails(503), vectors())
    assert embedder(one, waits).embed_documents(["d"]).shape == (1, 3)
    assert waits == [7.0, 1.0]


def test_a_question_that_meets_a_rate_limit_hears_of_it_at_once(provider: Callable[..., Provider]) -> None:
    one = provider(fails(429, Retry_After="7"))
    made = EmbedderChain([first := embedder(one)], Fixed()).question("q", {first.id.fingerprint: 1.0})
    assert made.embedder.id.provider == "static"
    assert "it answered 429" in (made.fallback or "")
    assert len(one.requests) == 1


def test_one_that_failed_is_left_alone_for_a_while_and_the_reason_stays(
    provider: Callable[..., Provider],
) -> None:
    one = provider(fails(429), vectors())
    seconds = [0.0]
    chain = EmbedderChain([first := embedder(one)], Fixed(), now=lambda: seconds[0])
    covered = {first.id.fingerprint: 1.0}
    chain.question("q", covered)
    assert "it answered 429" in (chain.question("q", covered).fallback or "")
    assert len(one.requests) == 1
    seconds[0] = 31.0
    assert chain.question("q", covered).embedder is first


def test_a_long_text_is_cut_to_what_every_model_takes(provider: Callable[..., Provider]) -> None:
    one = provider(vectors())
    embedder(one).embed_documents(["x" * 100_000])
    assert [len(text) for text in one.requests[0][2]["input"]] == [8_000]


def test_a_provider_that_stays_down_is_given_up_after_a_bounded_number_of_tries(
    provider: Callable[..., Provider],
) -> None:
    waits: list[float] = []
    one = provider(fails(500))
    with pytest.raises(EmbeddingFailed, match="500"):
        embedder(one, waits).embed_documents(["d"])
    assert (len(one.requests), len(waits)) == (4, 3)


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_what_asking_again_cannot_mend_is_not_asked_again(
    provider: Callable[..., Provider], status: int
) -> None:
    one = provider(fails(status))
    with pytest.raises(EmbeddingFailed, match=str(status)):
        embedder(one).embed_query("q")
    assert len(one.requests) == 1


def test_too_few_vectors_are_not_taken_for_all(provider: Callable[..., Provider]) -> None:
    with pytest.raises(EmbeddingFailed, match="1 embeddings for 2 texts"):
        embedder(provider(vectors(short=1))).embed_documents(["a", "b"])


def test_vectors_of_another_length_are_refused(provider: Callable[..., Provider]) -> None:
    with pytest.raises(EmbeddingFailed, match="4 dimensions, not 3"):
        embedder(provider(vectors(dims=4))).embed_query("q")


def test_an_answer_that_is_no_json_or_lacks_its_fields_is_a_clear_error(
    provider: Callable[..., Provider],
) -> None:
    with pytest.raises(EmbeddingFailed, match="not JSON"):
        embedder(provider(lambda path, body: (200, {}, b"<html>"))).embed_query("q")
    with pytest.raises(EmbeddingFailed, match="has no 'data'"):
        embedder(provider(lambda path, body: (200, {}, b"{}"))).embed_query("q")


def test_a_provider_that_does_not_answer_in_time_is_a_failure(provider: Callable[..., Provider]) -> None:
    gate = threading.Event()

    def hang(path: str, body: dict[str, Any]) -> Answer:
        gate.wait(PATIENCE)
        return 200, {}, b"{}"

    with pytest.raises(EmbeddingFailed, match="in time"):
        embedder(provider(hang), timeout=0.05, attempts=1).embed_query("q")
    gate.set()


def test_nobody_listening_is_a_failure_that_says_so() -> None:
    endpoint = Endpoint("http://127.0.0.1:9/v1", "m", 3, None, attempts=1)
    with pytest.raises(EmbeddingFailed, match="cannot be reached"):
        RemoteEmbedder(endpoint, OPENAI).embed_query("q")


def test_gemini_is_asked_in_its_own_way(provider: Callable[..., Provider]) -> None:
    def answer(path: str, body: dict[str, Any]) -> Answer:
        return (
            200,
            {},
            json.dumps({"embeddings": [{"values": [3.0, 4.0]} for _ in body["requests"]]}).encode(),
        )

    one = provider(answer)
    made = RemoteEmbedder(Endpoint(one.url, "text-embedding-004", 2, "secret"), GEMINI)
    assert np.allclose(made.embed_documents(["a", "b"]), [[0.6, 0.8], [0.6, 0.8]])
    made.embed_query("q")
    path, headers, body = one.requests[0]
    assert path == "/v1/models/text-embedding-004:batchEmbedContents"
    assert headers["x-goog-api-key"] == "secret"
    assert body["requests"][0]["taskType"] == "RETRIEVAL_DOCUMENT"
    assert one.requests[1][2]["requests"][0]["taskType"] == "RETRIEVAL_QUERY"


class Fixed:
    """A stand-in for a local embedder: one vector for everything."""

    id = EmbedderId("static", "fixed", 3, "static:fixed")

    def embed_documents(self, texts: list[str]) -> Vectors:
        return np.tile(np.array([1, 0, 0], np.float32), (len(texts), 1))

    def embed_query(self, text: str) -> Vectors:
        return np.array([1, 0, 0], np.float32)


def test_the_next_in_the_chain_serves_when_one_fails_and_the_answer_says_why(
    provider: Callable[..., Provider],
) -> None:
    down, up = provider(fails(500)), provider(vectors())
    first = embedder(down)
    second = RemoteEmbedder(Endpoint(up.url, "other-model", 3, "k"), OPENAI)
    chain = EmbedderChain([first, second], Fixed())
    covered = {first.id.fingerprint: 1.0, second.id.fingerprint: 1.0}
    made = chain.question("q", covered)
    assert made.embedder is second
    assert "500" in (made.fallback or "")


def test_an_embedder_that_has_not_covered_the_scope_yet_does_not_serve(
    provider: Callable[..., Provider],
) -> None:
    first = embedder(provider(vectors()))
    made = EmbedderChain([first], Fixed()).question("q", {first.id.fingerprint: 0.5})
    assert made.embedder.id.provider == "static"
    assert "50%" in (made.fallback or "")
