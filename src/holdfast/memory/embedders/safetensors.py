"""A reader for safetensors files: a JSON header, then the raw arrays, mapped and not copied."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import InvalidInput

_DTYPES: dict[str, type[np.generic]] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "I64": np.int64,
    "I32": np.int32,
    "I8": np.int8,
    "U8": np.uint8,
}


def read_safetensors(path: Path) -> dict[str, NDArray[Any]]:
    """Every array of the file by name, as read-only views on the mapped file."""
    try:
        raw = np.memmap(path, dtype=np.uint8, mode="r")
        size = int(raw[:8].view("<u8")[0])
        header = json.loads(bytes(raw[8 : 8 + size]))
        header.pop("__metadata__", None)
        body = raw[8 + size :]
        return {name: _array(body, spec) for name, spec in header.items()}
    except (OSError, ValueError, IndexError, KeyError, TypeError) as error:
        raise InvalidInput(
            f"cannot read model weights: {path}",
            hint="The file is missing, cut short or not safetensors; install or copy the model again.",
        ) from error


def _array(body: NDArray[np.uint8], spec: dict[str, Any]) -> NDArray[Any]:
    start, end = spec["data_offsets"]
    return body[start:end].view(_DTYPES[spec["dtype"]]).reshape(spec["shape"])


def sha256_of(path: Path) -> str:
    """The file's hash, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
