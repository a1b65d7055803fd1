"""A model of the shape of the real ones and a few kilobytes in size."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "kelp", "hold", "##fast", "##s", "sea", "!", "東"]
HEADS, WIDTH, WIDE, LAYERS = 2, 8, 16, 2


def write_safetensors(path: Path, arrays: dict[str, NDArray[np.float32]]) -> None:
    header: dict[str, Any] = {}
    body = b""
    for name, array in arrays.items():
        raw = array.astype("<f4").tobytes()
        span = [len(body), len(body) + len(raw)]
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": span}
        body += raw
    head = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + body)


def small_bert() -> dict[str, NDArray[np.float32]]:
    random = np.random.default_rng(7)

    def made(*shape: int) -> NDArray[np.float32]:
        return random.normal(0, 0.5, shape).astype(np.float32)

    def layer(base: str) -> dict[str, NDArray[np.float32]]:
        linear = {
            "attention.self.query": (WIDTH, WIDTH),
            "attention.self.key": (WIDTH, WIDTH),
            "attention.self.value": (WIDTH, WIDTH),
            "attention.output.dense": (WIDTH, WIDTH),
            "intermediate.dense": (WIDE, WIDTH),
            "output.dense": (WIDTH, WIDE),
        }
        arrays = {f"{base}.{name}.weight": made(*shape) for name, shape in linear.items()}
        arrays |= {f"{base}.{name}.bias": made(shape[0]) for name, shape in linear.items()}
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            arrays |= {f"{base}.{name}.weight": made(WIDTH), f"{base}.{name}.bias": made(WIDTH)}
        return arrays

    arrays = {
        "embeddings.word_embeddings.weight": made(len(WORDS), WIDTH),
        "embeddings.position_embeddings.weight": made(32, WIDTH),
        "embeddings.token_type_embeddings.weight": made(2, WIDTH),
        "embeddings.LayerNorm.weight": made(WIDTH),
        "embeddings.LayerNorm.bias": made(WIDTH),
    }
    for number in range(LAYERS):
        arrays |= layer(f"encoder.layer.{number}")
    return arrays


def write_model(folder: Path) -> Path:
    """A whole model folder."""
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    (folder / "config.json").write_text(json.dumps({"num_attention_heads": HEADS, "layer_norm_eps": 1e-12}))
    write_safetensors(folder / "model.safetensors", small_bert())
    return folder
