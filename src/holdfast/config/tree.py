"""Walking the tree of sections by the keys of the wire: for suggestions, docs and adoption."""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from holdfast.config.section import Section

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
