"""What memory asks of an embedder, local or remote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class EmbedderId:
    """Which vectors may be compared: only those of one fingerprint (model, weights and recipe)."""

    provider: str
    model: str
    dims: int
    fingerprint: str


class Embedder(Protocol):
    @property
    def id(self) -> EmbedderId: ...

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """One row of length 1 per text; the same text gives the same row whatever stands beside it."""
        ...

    def embed_query(self, text: str) -> Vectors:
        """One vector of length 1, with the model's own query prefix where it has one."""
        ...


def normalised(vectors: Vectors) -> Vectors:
    """Rows of length 1; a row of zeros (a text without known words) stays zero."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    out: Vectors = (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return out
