"""Files of credentials: whole or not at all, and for their owner alone."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.errors import Unavailable


def written(path: Path, body: Mapping[str, Any]) -> None:
    """The file appears whole or not at all, readable by its owner only."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft.touch(mode=0o600)
        draft.write_text(json.dumps(body, indent=2, ensure_ascii=False) + "\n", "utf-8")
        draft.replace(path)
    except OSError as error:
        raise Unavailable(f"{path} cannot be written: {error.strerror}", code="home_unusable") from error
