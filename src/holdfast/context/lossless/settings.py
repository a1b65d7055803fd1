"""What the engine can be told in `plugins.entries.lossless.config`; every bound has a default."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from holdfast.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`threshold` is the share of the budget above which debt is noted; tokens are uncalibrated estimates.

    `summary_prefix_tokens` is what summaries may take in all before they are condensed (0: by the budget),
    `patience` how many failed drains keep history as it was before an extract is taken instead.
    """

    threshold: float = 0.75
    fresh_tail_messages: int = 64
    fresh_tail_tokens: int = 20_000
    leaf_chunk_tokens: int = 20_000
    leaf_target_tokens: int = 2_400
    condensed_target_tokens: int = 2_000
    summary_prefix_tokens: int = 0
    leaf_fanout: int = 8
    condensed_fanout: int = 4
    hard_fanout: int = 2
    max_passes: int = 12
    sweep_ms: int = 120_000
    summary_timeout_ms: int = 60_000
    large_payload_tokens: int = 25_000
    retain_depth: int = 2
    patience: int = 2
    retry_ms: int = 300_000
    retry_ceiling_ms: int = 1_800_000
    breaker_failures: int = 5
    breaker_ms: int = 1_800_000
    spend_calls: int = 24
    spend_window_ms: int = 600_000
    model: str | None = None

    def prefix_target(self, budget: int) -> int:
        """How many tokens of summaries may stand before the tail; more is condensed."""
        if self.summary_prefix_tokens:
            return self.summary_prefix_tokens
        half = int(self.threshold * budget) // 2
        return max(min(self.condensed_target_tokens, budget // 4), min(self.leaf_chunk_tokens, half))

    def tail_tokens(self, budget: int, *, urgent: bool = False) -> int:
        """The fresh tail takes at most a third of a small budget, and half of that when room must be made."""
        tokens = min(self.fresh_tail_tokens, budget // 3)
        return tokens // 2 if urgent else tokens

    def chunk_tokens(self, budget: int) -> int:
        return max(256, min(self.leaf_chunk_tokens, budget // 3))


def parse(config: Mapping[str, Any]) -> Settings:
    """Settings from camelCase keys; a wrong key or type is an error that names it."""
    known = {_camel(f.name): f for f in fields(Settings)}
    values: dict[str, Any] = {}
    for key, value in config.items():
        if key not in known:
            raise ConfigError(
                f"the lossless engine has no setting {key[:60]!r}", hint=f"It has {', '.join(known)}."
            )
        values[known[key].name] = _checked(key, value, getattr(Settings(), known[key].name))
    return Settings(**values)


def _checked(key: str, value: Any, default: object) -> Any:
    if default is None:
        good = value is None or isinstance(value, str)
    elif isinstance(default, float):
        good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 1
    else:
        low = {"retainDepth": -1, "summaryPrefixTokens": 0}.get(key, 1)
        good = isinstance(value, int) and not isinstance(value, bool) and value >= low
    if not good:
        raise ConfigError(f"plugins.entries.lossless.config.{key}: {value!r} cannot be used")
    return value


def _camel(name: str) -> str:
    return re.sub(r"_(\w)", lambda m: m[1].upper(), name)
