"""Models from a hub: real HTTP on loopback, a real (tiny) model, and all that can go wrong on the way."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest_memory import Desk
from tiny_model import write_model

from holdfast.config.memory import Embedding
from holdfast.errors import InvalidInput
from holdfast.memory.embedders.hub import DownloadFailed, HubModel, Manifest
from holdfast.memory.embedders.transformer import TransformerEmbedder
from holdfast.memory.embedding import chain_from

FILES = ("vocab.txt", "config.json", "model.safetensors")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass
class Hub:
    """Serves files; of those in `cut` only the first half at the first time, and of `gone` nothing."""

    files: dict[str, bytes]
    cut: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    asked: list[tuple[str, str | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.answer(self)

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/tiny-minilm"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        name = request.path.removeprefix("/tiny-minilm/")
        wanted = request.headers.get("range")
        self.asked.append((name, wanted))
        if name in self.gone or name not in self.files:
            request.send_error(404)
            return
        begin = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        data = self.files[name][begin:]
        request.send_response(206 if wanted else 200)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        sent = data[: len(data) // 2] if name in self.cut else data
        self.cut.discard(name)
        request.wfile.write(sent)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    folder = write_model(tmp_path / "tiny-minilm")
    files = {name: (folder / name).read_bytes() for name in FILES}
    manifest = {"model": "tiny-minilm", "files": {name: sha256(data) for name, data in files.items()}}
    made = Hub({**files, "manifest.json": json.dumps(manifest).encode()})
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return tmp_path / "models"


def names(asked: list[tuple[str, str | None]]) -> list[str]:
    return [name for name, _ in asked]


def test_a_model_is_fetched_once_with_progress_and_then_served_from_here(
    hub: Hub, models: Path, tmp_path: Path
) -> None:
    told: list[tuple[str, int, int]] = []
    config = Embedding.model_validate({"providers": ["local"], "local": {"baseUrl": hub.url}})
    chain = chain_from(config, {}, models)
    assert chain.preferred == []
    chain.fetch(lambda *step: told.append(step))
    size = len(hub.files["model.safetensors"])
    assert told[-1] == ("tiny-minilm: model.safetensors", size, size)
    original = TransformerEmbedder(tmp_path / "tiny-minilm")
    assert np.array_equal(chain.preferred[0].embed_query("kelp"), original.embed_query("kelp"))
    before = len(hub.asked)
    again = chain_from(config, {}, models)
    again.fetch()
    assert [one.id for one in again.preferred] == [chain.preferred[0].id]
    assert len(hub.asked) == before


def test_a_file_cut_in_the_middle_goes_on_where_it_ended(hub: Hub, models: Path) -> None:
    hub.cut.add("model.safetensors")
    model = HubModel(hub.url, models)
    model.fetch()
    half = len(hub.files["model.safetensors"]) // 2
    assert hub.asked[-2:] == [("model.safetensors", None), ("model.safetensors", f"bytes={half}-")]
    assert (model.folder / "model.safetensors").read_bytes() == hub.files["model.safetensors"]
    assert not list(models.rglob("*.part"))


def test_what_was_left_of_a_broken_download_is_used_by_the_next(hub: Hub, models: Path) -> None:
    model = HubModel(hub.url, models)
    model.folder.mkdir(parents=True)
    (model.folder / "vocab.txt.part").write_bytes(hub.files["vocab.txt"][:5])
    model.fetch()
    assert ("vocab.txt", "bytes=5-") in hub.asked
    assert model.ready() is not None


@pytest.mark.parametrize("left_over", [b"", b"rubbish of some other file"])
def test_a_wrong_file_is_refused_and_not_kept(hub: Hub, models: Path, left_over: bytes) -> None:
    hub.files["model.safetensors"] += b"!"
    model = HubModel(hub.url, models)
    if left_over:
        model.folder.mkdir(parents=True)
        (model.folder / "model.safetensors.part").write_bytes(left_over)
    with pytest.raises(DownloadFailed, match="sha256 differs"):
        model.fetch()
    assert model.ready() is None
    assert not (model.folder / "model.safetensors").exists()
    assert not list(models.rglob("*.part"))


def test_a_file_that_the_hub_lacks_is_named_and_the_rest_waits(
    hub: Hub, models: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hub.gone.add("model.safetensors")
    config = Embedding.model_validate({"providers": ["local"], "local": {"baseUrl": hub.url}})
    chain = chain_from(config, {}, models)
    with caplog.at_level(logging.WARNING):
        chain.fetch()
    assert "404 for model.safetensors" in caplog.text
    assert chain.preferred == []
    hub.gone.clear()
    chain.fetch()
    assert names(hub.asked).count("vocab.txt") == 1
    assert chain.preferred[0].id.model == "tiny-minilm"


def test_a_manifest_that_is_pinned_may_not_change(hub: Hub, models: Path) -> None:
    pin = sha256(hub.files["manifest.json"])
    HubModel(f"{hub.url}#sha256={pin}", models).fetch()
    with pytest.raises(DownloadFailed, match="not the one that the config names"):
        HubModel(f"{hub.url}#sha256={'0' * 64}", models).fetch()


def test_a_manifest_kept_here_names_the_files_of_any_hub(hub: Hub, models: Path, tmp_path: Path) -> None:
    files = {name: sha256(hub.files[name]) for name in FILES}
    kept = tmp_path / "arctic.json"
    kept.write_text(json.dumps({"model": "tiny-minilm", "base": hub.url, "files": files}))
    config = Embedding.model_validate({"providers": ["local"], "local": {"model": str(kept)}})
    chain = chain_from(config, {}, models)
    chain.fetch()
    assert chain.preferred[0].id.model == "tiny-minilm"
    assert "manifest.json" not in names(hub.asked)


def test_a_hub_that_is_not_there_leaves_the_static_model_to_serve(models: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as nobody:
        port = nobody.server_port
    model = HubModel(f"http://127.0.0.1:{port}/tiny-minilm", models)
    with pytest.raises(DownloadFailed, match="did not answer"):
        model.fetch()


@pytest.mark.parametrize("path", ["../vocab.txt", "/etc/passwd", "a/../../b", "", "c:\\x", "a\0b"])
def test_a_manifest_cannot_write_outside_the_models_folder(path: str) -> None:
    manifest = {"model": "tiny", "base": "https://hub.example", "files": {path: "0" * 64}}
    with pytest.raises(InvalidInput):
        Manifest.parse(json.dumps(manifest).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"model": "x"}', b'{"model": "x", "files": 3}'])
def test_a_manifest_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        Manifest.parse(data, "https://hub.example")


@pytest.mark.parametrize("address", ["http://hub.example/m", "ftp://hub.example/m", "file:///etc"])
def test_plain_http_is_for_this_machine_only(address: str, models: Path) -> None:
    with pytest.raises(InvalidInput, match="not fetched"):
        HubModel(address, models).fetch()


def test_refining_fetches_the_model_and_then_embeds_with_it(
    hub: Hub, models: Path, new_desk: Callable[..., Desk], sqlite_store: Any
) -> None:
    desk = new_desk(sqlite_store)
    config = Embedding.model_validate({"providers": ["local"], "local": {"baseUrl": hub.url}})
    desk.memory.chain = chain_from(config, {}, models)
    desk.write("MEMORY.md", "kelp holds fast")
    desk.memory.update("main")
    told: list[str] = []
    assert desk.memory.refine(progress=lambda stage, done, total: told.append(stage)) == 1
    assert {"tiny-minilm: model.safetensors", "embeddings"} <= set(told)
    assert [one["covered"] for one in desk.memory.status("main")["embedders"]] == [1.0, 1.0]
