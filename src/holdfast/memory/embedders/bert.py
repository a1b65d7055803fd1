"""The encoder of a BERT model in plain numpy: what a machine without onnxruntime runs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class BertEncoder:
    """Runs batches of equal length, so nothing is padded and no text's vector depends on another's."""

    def __init__(self, weights: dict[str, NDArray[Any]], heads: int, epsilon: float) -> None:
        self._w = {_bare(name): array for name, array in weights.items()}
        self._heads = heads
        self._epsilon = epsilon
        self.layers = 1 + max(int(name.split(".")[2]) for name in self._w if ".layer." in name)
        self._fused = [self._fuse(layer) for layer in range(self.layers)]

    def __call__(self, ids: NDArray[np.int64]) -> Floats:
        """Hidden states of the last layer, `(texts, tokens, width)`."""
        w = self._w
        x = w["embeddings.word_embeddings.weight"][ids]
        x = x + w["embeddings.position_embeddings.weight"][: ids.shape[1]]
        x = x + w["embeddings.token_type_embeddings.weight"][0]
        x = self._norm(x.astype(np.float32), "embeddings.LayerNorm")
        for layer in range(self.layers):
            x = self._layer(x, layer)
        return x

    def _layer(self, x: Floats, layer: int) -> Floats:
        base = f"encoder.layer.{layer}"
        attended = self._linear(self._attend(x, layer), f"{base}.attention.output.dense")
        x = self._norm(x + attended, f"{base}.attention.output.LayerNorm")
        wide = _gelu(self._linear(x, f"{base}.intermediate.dense"))
        return self._norm(x + self._linear(wide, f"{base}.output.dense"), f"{base}.output.LayerNorm")

    def _attend(self, x: Floats, layer: int) -> Floats:
        texts, tokens, width = x.shape
        weight, bias = self._fused[layer]
        flat = x.reshape(-1, width) @ weight + bias
        split = flat.reshape(texts, tokens, 3, self._heads, width // self._heads)
        query, key, value = split.transpose(2, 0, 3, 1, 4)
        scores = query @ key.transpose(0, 1, 3, 2)
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        return np.ascontiguousarray((scores @ value).transpose(0, 2, 1, 3)).reshape(x.shape)

    def _fuse(self, layer: int) -> tuple[Floats, Floats]:
        """Query, key and value as one matrix, with the attention scale folded into the query."""
        names = [f"encoder.layer.{layer}.attention.self.{part}" for part in ("query", "key", "value")]
        weights = [np.array(self._w[f"{name}.weight"].T, np.float32) for name in names]
        biases = [np.array(self._w[f"{name}.bias"], np.float32) for name in names]
        scale = np.float32((weights[0].shape[1] // self._heads) ** -0.5)
        weights[0] *= scale
        biases[0] *= scale
        return np.concatenate(weights, axis=1), np.concatenate(biases)

    def _linear(self, x: Floats, name: str) -> Floats:
        weight, bias = self._w[f"{name}.weight"], self._w[f"{name}.bias"]
        out: Floats = x.reshape(-1, x.shape[-1]) @ weight.T
        out += bias
        return out.reshape(*x.shape[:-1], -1)

    def _norm(self, x: Floats, name: str) -> Floats:
        x = x - x.mean(axis=-1, keepdims=True)
        x /= np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(self._epsilon))
        out: Floats = x * self._w[f"{name}.weight"] + self._w[f"{name}.bias"]
        return out


def _bare(name: str) -> str:
    return name.removeprefix("bert.")


def _gelu(x: Floats) -> Floats:
    """The exact GELU; erf by a rational form that is right to seven digits (numpy has none)."""
    z = np.abs(x) * np.float32(0.7071067811865476)
    t = 1 / (1 + np.float32(0.3275911) * z)
    poly = t * np.float32(1.061405429) - np.float32(1.453152027)
    for factor in (1.421413741, -0.284496736, 0.254829592):
        poly = poly * t + np.float32(factor)
    erf = 1 - poly * t * np.exp(-z * z)
    return np.asarray(np.float32(0.5) * x * (1 + np.copysign(erf, x)), np.float32)
