"""The three tools by which an agent uses its memory: their schemas, and what they answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from holdfast.effects import DeclaredTool, Effect
from holdfast.errors import InvalidInput
from holdfast.log import Reader
from holdfast.memory.backend import MemoryService
from holdfast.memory.scope import Chat
from holdfast.memory.service import MAX_QUERY, Ask


class SearchInput(BaseModel):
    """Look into long-term memory: notes, daily logs and past conversations."""

    model_config = ConfigDict(extra="forbid")
    query: Annotated[str, Field(min_length=1, max_length=MAX_QUERY, description="What to look for.")]
    maxResults: Annotated[int | None, Field(ge=1, le=100, description="Results at most.")] = None  # noqa: N815
    minScore: Annotated[  # noqa: N815
        float | None, Field(ge=0, le=1, description="Least probability; 0: whatever is nearest.")
    ] = None


class GetInput(BaseModel):
    """Read lines of a memory file, or the conversation around something that a search found."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    path: Annotated[str, Field(min_length=1, max_length=1024, description="A path from memory_search.")]
    start: Annotated[int, Field(alias="from", ge=1, description="First line.")] = 1
    lines: Annotated[int | None, Field(ge=1, le=10_000, description="Number of lines.")] = None


class WriteInput(BaseModel):
    """Keep something for later: appends to today's log, or to the memory file that is named."""

    model_config = ConfigDict(extra="forbid")
    text: Annotated[str, Field(min_length=1, max_length=64_000, description="The note, in markdown.")]
    path: Annotated[
        str | None, Field(max_length=1024, description="MEMORY.md or memory/NAME.md; else today's log.")
    ] = None


TOOLS: Final[dict[str, DeclaredTool]] = {
    "memory_search": DeclaredTool(input=SearchInput, effect=Effect.NONE, repeatable=True, for_others=True),
    "memory_get": DeclaredTool(input=GetInput, effect=Effect.NONE, repeatable=True, for_others=True),
    "memory_write": DeclaredTool(input=WriteInput, effect=Effect.OWN, repeatable=False),
}


def schemas() -> dict[str, dict[str, Any]]:
    """Name → description and JSON Schema of the input."""
    return {
        name: {"description": tool.input.__doc__, "parameters": tool.input.model_json_schema()}
        for name, tool in TOOLS.items()
    }


def call(
    memory: MemoryService, name: str, arguments: Mapping[str, Any], *, agent: str, reader: Reader, chat: Chat
) -> Mapping[str, Any]:
    """Run one of the tools for an agent in a chat, as those who hear the chat. What it reads is data, never
    an instruction."""
    if name not in TOOLS:
        raise InvalidInput(f"no memory tool {name[:40]!r}", hint=f"There are {', '.join(TOOLS)}.")
    given = _checked(TOOLS[name].input, arguments)
    match given:
        case SearchInput():
            ask = Ask(given.query, agent, reader, chat, given.maxResults, given.minScore)
            return memory.search(ask).json()
        case GetInput():
            return memory.read(agent, given.path, reader, start=given.start, lines=given.lines, chat=chat)
        case WriteInput():
            return memory.write(agent, given.text, reader, path=given.path)
    raise AssertionError(name)


def _checked(model: type[BaseModel], arguments: Mapping[str, Any]) -> BaseModel:
    try:
        return model.model_validate(dict(arguments))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"]) or "the arguments"
        raise InvalidInput(f"{where}: {first['msg']}", hint="See the tool's schema.") from error
