"""The embedder that is always at hand: one vector per token, summed by how much each token says.

The weights are those of the `wordllama` package, read from its folder and never imported. A plain
mean is drowned by function words and marks; here a token counts by its rarity, estimated from its
place in the vocabulary (which is ordered by frequency), and function words hardly at all.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import Unavailable
from holdfast.memory.embedders.base import EmbedderId, Vectors, normalised
from holdfast.memory.embedders.bpe import BytePairs
from holdfast.memory.embedders.safetensors import read_safetensors, sha256_of
from holdfast.memory.folding import fold
from holdfast.memory.stopwords import ENGLISH, GERMAN

_PACKAGE = "wordllama"
_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
_RECIPE = "r1"
MOST_CHARS = 20_000
"""What a text is about stands in its head; a dump of a megabyte must not hold up all that comes after it."""
_RARE = 1e-3
_FUNCTION_WORD = 0.1
_FIRST_MERGE = 259
_FIRST_LETTER = 29_871


class StaticEmbedder:
    """256 dimensions, thousands of texts a second, no model to run and nothing to download."""

    def __init__(self, folder: Path | None = None) -> None:
        folder = folder or package_folder(_PACKAGE)
        vectors = read_safetensors(folder / _WEIGHTS)["embedding.weight"]
        self._pairs = BytePairs.from_file(folder / _TOKENIZER)
        self._weighted = token_weights(self._pairs.vocabulary, len(vectors))[:, None] * vectors
        dims, digest = int(vectors.shape[1]), sha256_of(folder / _WEIGHTS)
        self._id = EmbedderId("static", "wordllama-l2-256", dims, f"static:{digest[:16]}:{_RECIPE}")

    @property
    def id(self) -> EmbedderId:
        return self._id

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        rows = [self._sum(text) for text in texts]
        return normalised(np.array(rows, np.float32).reshape(len(rows), self._id.dims))

    def embed_query(self, text: str) -> Vectors:
        return normalised(self._sum(text))

    def _sum(self, text: str) -> Vectors:
        summed: Vectors = np.add.reduce(self._weighted[self._pairs.ids(text[:MOST_CHARS])], axis=0)
        return summed


def token_weights(vocabulary: dict[str, int], size: int) -> NDArray[np.float32]:
    """How much each token counts: a rarity by its rank under Zipf's law, less for function words."""
    rank = np.maximum(np.arange(size) - _FIRST_MERGE + 1, 1)
    share = 1 / (rank * np.log(size))
    share[:_FIRST_MERGE] = 0.1
    share[_FIRST_LETTER:] = _RARE
    weights = _RARE / (_RARE + share)
    for token, number in vocabulary.items():
        word = fold(token.lstrip("▁"))
        if word in ENGLISH or word in GERMAN or not any(char.isalnum() for char in word):
            weights[number] *= _FUNCTION_WORD
    return np.asarray(weights, np.float32)


def package_folder(package: str) -> Path:
    """The folder of an installed package, found without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise Unavailable(
            f"the package {package} is not installed", hint=f"Install it: pip install {package}"
        )
    return Path(spec.submodule_search_locations[0])
