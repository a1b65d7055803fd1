"""The base of every section of the config, the two ways to declare a key in one, and walking and merging
sections by the keys of the wire.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

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


Loc = Sequence[str | int]


def plain(annotation: Any) -> Any:
    """The annotation without its metadata and without `| None`."""
    if get_origin(annotation) is Annotated:
        return plain(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
        return plain(kinds[0]) if len(kinds) == 1 else annotation
    return annotation


def is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Section)


def fields(section: type[Section]) -> Iterator[tuple[str, FieldInfo]]:
    """Every key of a section as it is written on the wire."""
    for name, field in section.model_fields.items():
        yield field.alias or name, field


def at(root: Any, loc: Loc) -> Any:
    """The plain annotation that stands at a path, or None where the tree does not reach."""
    here = plain(root)
    for element in loc:
        here = _step(here, element)
    return here


def _step(here: Any, element: str | int) -> Any:
    if is_section(here):
        found = {**dict(fields(here)), **here.model_fields}.get(str(element))
        return plain(found.annotation) if found else None
    inner = get_args(here)
    if get_origin(here) is tuple and isinstance(element, int):
        return plain(inner[0])
    if get_origin(here) is dict and isinstance(element, str):
        return plain(inner[1])
    return None


def dotted(loc: Loc) -> str:
    """A path as a person writes it: `agents.list[0].workspace`."""
    text = ""
    for element in loc:
        if isinstance(element, int):
            text += f"[{element}]"
        elif element.replace("-", "_").isidentifier():
            text += f".{element}" if text else element
        else:
            text += f'["{element}"]'
    return text


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
