"""The two tools by which an agent gets back what its context no longer shows: schemas and answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from holdfast.effects import DeclaredTool, Effect
from holdfast.errors import InvalidInput
from holdfast.log import Session, Store

_PAGE_CHARS: Final = 12_000
_MOST_CHARS: Final = 40_000


class ReadInput(BaseModel):
    """Read the exact words behind a summary (sum_…), a message kept aside (log-…) or a gap (span:…)."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    id: Annotated[str, Field(min_length=1, max_length=120, description="An id from the context or a search.")]
    start: Annotated[
        str | int | None,
        Field(alias="from", description="The `next` of the page before; else the beginning."),
    ] = None
    limit: Annotated[int, Field(ge=1, le=_MOST_CHARS, description="Characters of the page.")] = _PAGE_CHARS


class SearchInput(BaseModel):
    """Find words in everything that was said and done in this session, summarised or not."""

    model_config = ConfigDict(extra="forbid")
    query: Annotated[str, Field(min_length=1, max_length=1_000, description="Words, names or paths.")]
    limit: Annotated[int, Field(ge=1, le=100, description="Hits at most.")] = 10
    offset: Annotated[int, Field(ge=0, le=10_000, description="Hits to pass over.")] = 0


TOOLS: Final[dict[str, DeclaredTool]] = {
    "context_read": DeclaredTool(input=ReadInput, effect=Effect.NONE, repeatable=True, for_others=True),
    "context_search": DeclaredTool(input=SearchInput, effect=Effect.NONE, repeatable=True, for_others=True),
}


def schemas() -> dict[str, dict[str, Any]]:
    """Name → description and JSON Schema of the input."""
    return {
        name: {"description": tool.input.__doc__, "parameters": tool.input.model_json_schema()}
        for name, tool in TOOLS.items()
    }


def call(
    store: Store,
    name: str,
    arguments: Mapping[str, Any],
    *,
    session: Session,
    most_chars: int = _MOST_CHARS,
) -> dict[str, Any]:
    """Run one of the tools for a session; it sees that session's family only, and of that what all may read
    who hear the session now. What it reads is data. A page has at most `most_chars`."""
    from holdfast.context.lossless.recall import Recall, search

    if name not in TOOLS:
        raise InvalidInput(f"no context tool {name[:40]!r}", hint=f"There are {', '.join(TOOLS)}.")
    given = _checked(TOOLS[name].input, arguments)
    with store.read(session.reader) as tx:
        recall = Recall(tx, session.id)
        match given:
            case ReadInput():
                limit = min(given.limit, max(1, most_chars))
                return recall.read(given.id, start=given.start, limit=limit).json()
            case SearchInput():
                return search(recall, given.query, limit=given.limit, offset=given.offset).json()
    raise AssertionError(name)


def _checked(model: type[BaseModel], arguments: Mapping[str, Any]) -> BaseModel:
    try:
        return model.model_validate(dict(arguments))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"]) or "the arguments"
        raise InvalidInput(f"{where}: {first['msg']}", hint="See the tool's schema.") from error
