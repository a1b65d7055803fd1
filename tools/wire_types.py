"""Writes `web/src/api/schema.d.ts` from what the gateway says of itself; `make wire` runs it.

The first line has a hash of the description, so that a test can tell without Node whether the file is stale.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from holdfast.gateway.app import description

WEB: Final = Path(__file__).parent.parent / "web"
TYPES: Final = WEB / "src/api/schema.d.ts"


def wire() -> dict[str, Any]:
    """What the pages need of the description: what is asked under `/api`, and what is answered to that."""
    told = description()
    paths = {
        path: {method: _operation(one) for method, one in methods.items()}
        for path, methods in told["paths"].items()
        if path.startswith("/api/") and not path.startswith("/api/engine/")
    }
    return _untitled(
        {"openapi": told["openapi"], "info": {"title": "Holdfast", "version": "1"}}
        | {"paths": paths, "components": {"schemas": told["components"]["schemas"]}}
    )


def _operation(one: dict[str, Any]) -> dict[str, Any]:
    kept = {name: one[name] for name in ("parameters", "requestBody") if name in one}
    well = {status: {**answer, "headers": {}} for status, answer in one["responses"].items() if status < "3"}
    return kept | {"responses": well}


def _untitled(part: Any) -> Any:
    """Without the titles that say a field's name again, and without descriptions: the docs have them."""
    if isinstance(part, list):
        return [_untitled(one) for one in part]
    if not isinstance(part, dict):
        return part
    return {
        name: _untitled(one)
        for name, one in part.items()
        if name not in ("title", "description") or not isinstance(one, str) or "version" in part
    }


def first_line() -> str:
    """The line that a current file begins with."""
    digest = hashlib.sha256(json.dumps(wire(), sort_keys=True).encode()).hexdigest()
    return f"// Made by `make wire` from /openapi.json; sha256 {digest}"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        spec, made = Path(folder) / "openapi.json", Path(folder) / "schema.d.ts"
        spec.write_text(json.dumps(wire()))
        tool = WEB / "node_modules/openapi-typescript/bin/cli.js"
        subprocess.run(
            ["node", tool, spec, "--output", made, "--root-types", "--root-types-no-schema-prefix"],
            check=True,
            stdout=sys.stderr,
        )
        TYPES.write_text(f"{first_line()}\n{made.read_text()}")


if __name__ == "__main__":
    main()
