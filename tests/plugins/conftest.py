"""Helpers beside other tests: a gateway that listens, and a scripted model behind it."""

from __future__ import annotations

import sys
from pathlib import Path

for beside in ("gateway", "channels"):
    sys.path.append(str(Path(__file__).parents[1] / beside))
