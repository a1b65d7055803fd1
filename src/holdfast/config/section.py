"""The base of every section of the config, and the two ways to declare a key in one."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

Model = TypeVar("Model", bound=BaseModel)


class Section(BaseModel):
    """Frozen, camelCase on the wire, and closed: a key that is not declared is an error."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        allow_inf_nan=False,
        defer_build=True,
    )


def key(default: Any, description: str, **limits: Any) -> Any:
    """One setting, with its default and the line that the docs and the schema show for it."""
    return Field(default=default, description=description, **limits)


def part(description: str) -> Any:
    """A nested section that stands at its own defaults when it is left out.

    An empty object is checked in its place, since calling the model would build a validator of its own
    for every section and double the time to the first config.
    """
    return Field(default_factory=dict, validate_default=True, description=description)


def table(default: Any, description: str, **limits: Any) -> Any:
    """A map or list of settings, copied for every config so that none is shared."""
    return Field(default_factory=lambda: default.copy(), description=description, **limits)


def overlay(base: Model, over: BaseModel) -> Model:
    """`base` with every key that was set in `over`, section by section; maps merge by key."""
    changes: dict[str, Any] = {}
    for name in over.model_fields_set & type(base).model_fields.keys():
        below, above = getattr(base, name), getattr(over, name)
        if isinstance(below, BaseModel) and isinstance(above, BaseModel):
            changes[name] = overlay(below, above)
        elif isinstance(below, dict) and isinstance(above, dict):
            changes[name] = {**below, **above}
        else:
            changes[name] = above
    return base.model_copy(update=changes)
