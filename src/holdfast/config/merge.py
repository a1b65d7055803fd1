"""Merging of plain config data: RFC 7396 patches, and defaults under given values."""

from __future__ import annotations

from typing import Any


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7396: objects merge, null removes, everything else replaces. Neither input is changed."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def deep_merge(below: Any, above: Any) -> Any:
    """`above` over `below`: objects merge, and every value given above stands, null too."""
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    merged = dict(below)
    for name, value in above.items():
        merged[name] = deep_merge(below[name], value) if name in below else value
    return merged
