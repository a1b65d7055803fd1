"""Embeddings over HTTP: OpenAI, everything that speaks its `/embeddings`, and Gemini."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from holdfast.errors import Unavailable
from holdfast.memory.embedders.base import EmbedderId, Vectors, normalised

OPENAI_URL: Final = "https://api.openai.com/v1"
GEMINI_URL: Final = "https://generativelanguage.googleapis.com/v1beta"
_TRANSIENT: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_REFUSED: Final = frozenset({401, 403, 404})
_LONGEST_WAIT: Final = 30.0
_MOST_CHARS: Final = 8_000
"""Below the input limit of every model in every script; what a text is about stands in its head."""


class EmbeddingFailed(Unavailable):
    """The provider did not give what was asked for; the message says what it gave.

    `refused`: asking again will not help (the key, the model, the address).
    """

    code = "embedding_failed"

    def __init__(self, message: str, *, hint: str = "", refused: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.refused = refused


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to ask, for what, and how patiently."""

    url: str
    model: str
    dims: int | None
    key: str | None = None
    batch: int = 64
    timeout: float = 60.0
    attempts: int = 4


class RemoteEmbedder:
    """A provider behind an HTTP address. `wire` says how this one wants to be asked."""

    def __init__(
        self,
        endpoint: Endpoint,
        wire: Wire,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._endpoint = endpoint
        self._wire = wire
        self._sleep = sleep
        self._dims = endpoint.dims
        self._lock = threading.Lock()
        self._client: Any = None

    @property
    def id(self) -> EmbedderId:
        """Known without asking the provider: a search must not wait to learn whose vectors it has.

        `dims` is 0 until the first vectors have come; vectors of another length are refused by the index.
        """
        provider, model, asked = self._wire.provider, self._endpoint.model, self._endpoint.dims
        return EmbedderId(provider, model, self._dims or 0, f"{provider}:{model}:{asked or 'own'}")

    @property
    def is_openai_itself(self) -> bool:
        """Whether it is OpenAI that is asked, and not something that speaks like it."""
        return self._endpoint.url.rstrip("/") == OPENAI_URL

    def batch_line(self, key: str, text: str) -> dict[str, Any]:
        """One request of a batch file."""
        _, _, body = self._wire.request(self._endpoint, [text[:_MOST_CHARS]], False)
        return {"custom_id": key, "method": "POST", "url": "/v1/embeddings", "body": body}

    def send_batch(self, lines: bytes) -> str:
        """Hand over a file of requests; returns the id of the batch."""
        upload = {"file": ("texts.jsonl", lines, "application/jsonl")}
        file = self._called("POST", "/files", data={"purpose": "batch"}, files=upload)
        wanted = {"input_file_id": file["id"], "endpoint": "/v1/embeddings", "completion_window": "24h"}
        return str(self._called("POST", "/batches", json=wanted)["id"])

    def look_at_batch(self, id_: str) -> dict[str, Any]:
        return self._called("GET", f"/batches/{id_}")

    def read_file(self, id_: str) -> str:
        return self._response("GET", f"/files/{id_}/content").text  # type: ignore[no-any-return]

    def _called(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        return _Answer(self._response(method, path, **request).json())

    def _response(self, method: str, path: str, **request: Any) -> Any:
        import httpx

        _, headers, _ = self._wire.request(self._endpoint, [], False)
        url = self._endpoint.url.rstrip("/") + path
        try:
            response = self._connected().request(method, url, headers=headers, **request)
        except httpx.HTTPError as error:
            raise EmbeddingFailed(f"{url} cannot be reached ({type(error).__name__})") from error
        if response.status_code != 200:
            raise EmbeddingFailed(f"{url} answered {response.status_code}")
        return response

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        return self._embed(texts, query=False)

    def embed_query(self, text: str) -> Vectors:
        """Asked once: somebody waits, and hears why it failed rather than that time was up."""
        row: Vectors = self._embed([text], query=True)[0]
        return row

    def _embed(self, texts: Sequence[str], *, query: bool) -> Vectors:
        size, client = self._endpoint.batch, self._connected()
        texts = [text[:_MOST_CHARS] for text in texts]
        parts = [
            self._batch(client, texts[start : start + size], query) for start in range(0, len(texts), size)
        ]
        if not parts:
            return np.zeros((0, self._dims or 0), np.float32)
        return normalised(np.concatenate(parts))

    def _connected(self) -> Any:
        """One client for all requests: making one, with its certificates, takes longer than a question."""
        import httpx

        with self._lock:
            if self._client is None:
                self._client = httpx.Client(timeout=self._endpoint.timeout)
            return self._client

    def _batch(self, client: Any, texts: Sequence[str], query: bool) -> Vectors:
        """One request, repeated while the provider says that it may work later."""
        path, headers, body = self._wire.request(self._endpoint, texts, query)
        url = self._endpoint.url.rstrip("/") + path
        failure, attempts = "no attempt was made", 1 if query else self._endpoint.attempts
        for attempt in range(attempts):
            outcome = _send(client, url, headers, body)
            if isinstance(outcome, _Retry):
                failure = outcome.why
                if attempt + 1 < attempts:
                    self._sleep(outcome.wait if outcome.wait is not None else min(0.5 * 2**attempt, 8.0))
                continue
            return self._checked(self._wire.vectors(outcome), len(texts))
        raise EmbeddingFailed(f"{self._wire.provider} gave no embeddings: {failure}")

    def _checked(self, rows: list[list[float]], wanted: int) -> Vectors:
        if len(rows) != wanted:
            raise EmbeddingFailed(f"{self._wire.provider} gave {len(rows)} embeddings for {wanted} texts")
        dims = self._dims or len(rows[0])
        for row in rows:
            if len(row) != dims:
                raise EmbeddingFailed(
                    f"{self._wire.provider} gave {len(row)} dimensions, not {dims}",
                    hint="Set memory.search.embedding dimensions to what the model gives.",
                )
        vectors = np.array(rows, np.float32)
        if not np.isfinite(vectors).all():
            raise EmbeddingFailed(f"{self._wire.provider} gave numbers that are none")
        self._dims = dims
        return vectors


@dataclass(frozen=True, slots=True)
class Wire:
    """The two questions on which providers differ: how to ask, and where the vectors are."""

    provider: str
    request: Callable[[Endpoint, Sequence[str], bool], tuple[str, dict[str, str], dict[str, Any]]]
    vectors: Callable[[Any], list[list[float]]]


def _openai_request(
    endpoint: Endpoint, texts: Sequence[str], query: bool
) -> tuple[str, dict[str, str], dict[str, Any]]:
    headers = {} if endpoint.key is None else {"Authorization": f"Bearer {endpoint.key}"}
    body: dict[str, Any] = {"model": endpoint.model, "input": list(texts), "encoding_format": "float"}
    if endpoint.dims is not None and endpoint.model.startswith("text-embedding-3"):
        body["dimensions"] = endpoint.dims
    return "/embeddings", headers, body


def _openai_vectors(answer: Any) -> list[list[float]]:
    rows = sorted(answer["data"], key=lambda row: row.get("index", 0))
    return [row["embedding"] for row in rows]


def _gemini_request(
    endpoint: Endpoint, texts: Sequence[str], query: bool
) -> tuple[str, dict[str, str], dict[str, Any]]:
    model = f"models/{endpoint.model.removeprefix('models/')}"
    task = "RETRIEVAL_QUERY" if query else "RETRIEVAL_DOCUMENT"
    requests = [{"model": model, "taskType": task, "content": {"parts": [{"text": text}]}} for text in texts]
    headers = {} if endpoint.key is None else {"x-goog-api-key": endpoint.key}
    return f"/{model}:batchEmbedContents", headers, {"requests": requests}


def _gemini_vectors(answer: Any) -> list[list[float]]:
    return [row["values"] for row in answer["embeddings"]]


OPENAI: Final = Wire("openai", _openai_request, _openai_vectors)
GEMINI: Final = Wire("gemini", _gemini_request, _gemini_vectors)


@dataclass(frozen=True, slots=True)
class _Retry:
    why: str
    wait: float | None = None


def _send(client: Any, url: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> Any:
    """The decoded answer, or why and when to ask again; what asking again cannot mend is raised."""
    import httpx

    try:
        response = client.post(url, headers=dict(headers), json=dict(body))
    except httpx.TimeoutException:
        return _Retry("it did not answer in time")
    except httpx.HTTPError as error:
        return _Retry(f"it cannot be reached ({type(error).__name__})")
    if response.status_code in _TRANSIENT:
        return _Retry(f"it answered {response.status_code}", _retry_after(response.headers))
    if response.status_code != 200:
        raise EmbeddingFailed(
            f"the embedding provider answered {response.status_code}",
            refused=response.status_code in _REFUSED,
        )
    try:
        return _Answer(response.json())
    except ValueError:
        return _Retry("its answer was not JSON")


class _Answer(dict[str, Any]):
    """A decoded answer; a field that is missing is the provider's fault, not ours."""

    def __missing__(self, key: str) -> Any:
        raise EmbeddingFailed(f"the embedding provider's answer has no {key!r}")


def _retry_after(headers: Mapping[str, str]) -> float | None:
    text = headers.get("retry-after", "")
    return min(float(text), _LONGEST_WAIT) if text.replace(".", "", 1).isdecimal() else None
