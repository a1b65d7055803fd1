"""What a room tells others of itself, as a typed record: the form in which it goes over the wire.

A record is a `TypedDict` with the names that JSON has. It is written once, where it is made; the gateway
declares it for OpenAPI, the pages' types are made from that, and the type checker holds it at no cost.
"""

from __future__ import annotations

from typing import Annotated, Final, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

__all__ = ["Iso", "NotRequired", "TypedDict", "record"]

Iso = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$", description="UTC.")]

record: Final = with_config(ConfigDict(extra="forbid"))
"""Marks a `TypedDict` as a record: OpenAPI then says that it has no other fields."""
