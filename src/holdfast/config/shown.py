"""The config file as text to be shown and edited: secrets are masked, and put back where it is saved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.config.secret import MASK, Secret, wrap_secrets
from holdfast.config.section import Section


def masked(data: Any, secrets: tuple[Secret, ...]) -> Any:
    """Plain data with every string that is one of the secrets as it may be shown."""
    if isinstance(data, dict):
        return {name: masked(value, secrets) for name, value in data.items()}
    if isinstance(data, list):
        return [masked(value, secrets) for value in data]
    if isinstance(data, str):
        return next((one.public() for one in secrets if one.is_text(data)), data)
    return data


def restored(data: Any, before: Any) -> Any:
    """What was edited, with what is masked as it was at its place before; a mask elsewhere stays one."""
    if isinstance(data, dict):
        old = before if isinstance(before, dict) else {}
        return {name: restored(value, old.get(name)) for name, value in data.items()}
    if isinstance(data, list):
        olds = before if isinstance(before, list) and len(before) == len(data) else [None] * len(data)
        return [restored(value, old) for value, old in zip(data, olds, strict=True)]
    if isinstance(data, str) and MASK in data and isinstance(before, str):
        return before if data in (MASK, masked(before, tuple(secrets_in(before)))) else data
    return data


def secrets_in(value: Any) -> Iterator[Secret]:
    """Every secret within a config, or within plain data by the names of its keys."""
    if isinstance(value, Secret):
        yield value
    elif isinstance(value, Section):
        for name in type(value).model_fields:
            yield from secrets_in(getattr(value, name))
    elif isinstance(value, dict):
        for inner in value.values():
            yield from secrets_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from secrets_in(inner)
    elif isinstance(value, str) and isinstance(wrapped := wrap_secrets(value), Secret):
        yield wrapped
