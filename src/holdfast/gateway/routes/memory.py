"""`/api/memory` and `/api/workspace`: search and read what an agent remembers, edit its files, forget."""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel
from starlette.responses import Response

from holdfast.clock import iso
from holdfast.context.workspace.editing import digest
from holdfast.errors import NotFound
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Admin, Caller, Gateway, Here, Unlimited
from holdfast.gateway.contract import Answer, Iso, answer, answers
from holdfast.gateway.tokens import Principal
from holdfast.gateway.wire import Text, Wire
from holdfast.log import FOR_OWNER, audit
from holdfast.memory import Ask, Chat
from holdfast.memory.damage import IndexHealthOut
from holdfast.memory.results import FoundOut
from holdfast.runtime import forgetting, readers
from holdfast.runtime.forgetting import files_of

router = APIRouter(tags=["memory"], route_class=StrictRoute)

AgentParam = Annotated[
    str | None, Query(alias="agentId", max_length=256, description="Unset: the default agent.")
]
SessionParam = Annotated[
    str | None, Query(alias="sessionKey", description="The chat that asks; unset: a private one.")
]
PathParam = Annotated[str, Query(min_length=1, max_length=1024)]


class LinesOut(Answer):
    path: str
    text: str
    from_: int = Field(alias="from")
    lines: int
    total_lines: int
    more: bool


class FileOut(Answer):
    path: str
    bytes: int
    updated_at: Iso


class CollectionOut(Answer):
    name: str
    files: int
    chunks: int


class EmbedderOut(Answer):
    provider: str
    model: str
    dims: int
    covered: float = Field(description="The share of documents that have its vector.")
    trouble: str | None


class MemoryStatusOut(Answer):
    """Where another backend serves, it tells of itself under its own name."""

    model_config = ConfigDict(alias_generator=to_camel, extra="allow")

    backend: str
    agent: str
    documents: int
    documents_in_all: int
    position: int
    updated_at: Iso | None
    collections: list[CollectionOut]
    embedders: list[EmbedderOut]
    health: IndexHealthOut


class WorkspaceTextOut(Answer):
    path: str
    text: str
    digest: str = Field(description="To be sent as `before` when it is saved.")


class VersionOut(Answer):
    at: int = Field(description="Names the version.")
    since: Iso
    bytes: int
    digest: str


class WorkspaceIn(Wire):
    path: Annotated[Text, Field(min_length=1, max_length=512)]
    text: Text
    before: Annotated[str, Field(max_length=64)] | None = Field(
        default=None, description="The digest of what was read; null for a file that was not there."
    )
    agent_id: Annotated[Text, Field(max_length=256)] | None = None


class QuoteOut(Answer):
    kind: forgetting.Kind
    id: str = Field(description="Of the entry, the summary or the topic; or the path of the file.")
    text: str
    agent: str | None
    line: int | None
    goes: bool = Field(description="It goes with the entry; the rest is for a person to decide.")


class QuotesOut(Answer):
    entry_id: str
    text: str
    session_key: str | None
    created_at: Iso
    quotes: list[QuoteOut]
    cut: bool = Field(description="Not all of the log was looked through, or not all that quotes it is here.")


class ForgetIn(Wire):
    entry_ids: Annotated[
        list[Annotated[Text, Field(min_length=1, max_length=256)]], Field(min_length=1, max_length=100)
    ]


class ForgottenOut(Answer):
    entries: int
    contexts: int = Field(description="Texts of contexts that were sent; those turns cannot be replayed now.")
    summaries: int
    digests: int
    versions: int = Field(description="Earlier texts of files.")


@router.get("/api/memory/search", response_model=FoundOut)
async def search(
    here: Here,
    caller: Caller,
    q: Annotated[str, Query(min_length=1, max_length=4000)],
    agent_id: AgentParam = None,
    session_key: SessionParam = None,
    max_results: Annotated[int | None, Query(alias="maxResults", ge=1, le=100)] = None,
    min_score: Annotated[float | None, Query(alias="minScore", ge=0, le=1)] = None,
    explain: Annotated[bool, Query(description="Show the parts of each score.")] = False,
) -> Response:
    """What memory has on a question, with its sources; an empty answer says why."""
    agent = _agent(here, caller, agent_id)

    def asking() -> tuple[Ask, bool]:
        reader = here.reader_for(caller, session_key)
        return Ask(q, agent, reader, Chat.of(session_key), max_results, min_score), explain

    found = await here.readers.answer(readers.memory_search, asking)
    return Response(found, media_type="application/json")


@router.get("/api/memory/get", response_model=LinesOut)
async def get(
    here: Here,
    caller: Caller,
    path: PathParam,
    agent_id: AgentParam = None,
    session_key: SessionParam = None,
    start: Annotated[int, Query(alias="from", ge=1, le=10_000_000)] = 1,
    lines: Annotated[int | None, Query(ge=1, le=10_000)] = None,
) -> Response:
    """Lines of a memory file."""
    agent = _agent(here, caller, agent_id)

    def read() -> LinesOut:
        reader, chat = here.reader_for(caller, session_key), Chat.of(session_key)
        found = here.hold.memory.read(agent, path, reader, start=start, lines=lines, chat=chat)
        return LinesOut.model_validate(found)

    return answer(await here.hold.threads(read))


@router.get("/api/memory/files", response_model=list[FileOut])
async def files(
    here: Here,
    caller: Caller,
    agent_id: AgentParam = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="At most so many.")] = 200,
) -> Response:
    """The files that an agent remembers by, as `GET /api/memory/get` takes their paths."""
    agent = _agent(here, caller, agent_id)

    def read() -> list[FileOut]:
        if not here.reader_for(caller, None).may_read_of(FOR_OWNER, agent):
            return []
        found = ((one, *each) for one in here.hold.collections(agent) for each in one.files())
        return [
            FileOut(path=one.address(path), bytes=facts.st_size, updated_at=iso(facts.st_mtime_ns // 10**6))
            for one, path, facts in islice(found, limit)
        ]

    return answers(await here.hold.threads(read))


@router.get("/api/memory/status", response_model=MemoryStatusOut)
async def status(here: Here, caller: Caller, agent_id: AgentParam = None) -> Response:
    """What is indexed, by whom it is embedded, and how fresh it is."""
    agent = _agent(here, caller, agent_id)
    found = await here.hold.threads(here.hold.memory.status, agent)
    return answer(MemoryStatusOut.model_validate(found))


@router.get("/api/memory/quotes", response_model=QuotesOut)
async def quotes(
    here: Here,
    caller: Unlimited,
    entry_id: Annotated[str, Query(alias="entryId", min_length=1, max_length=256)],
) -> Response:
    """An entry, and where else its words stand: what goes with it when it is forgotten, and what does not."""

    def read() -> QuotesOut:
        with here.read_as(caller) as tx:
            found = forgetting.quotes(here.hold, tx, entry_id)
        entry = found.entry
        return QuotesOut(
            entry_id=entry.id,
            text=entry.content,
            session_key=entry.session_key,
            created_at=iso(entry.created_at),
            quotes=[QuoteOut(**asdict(one)) for one in found.quotes],
            cut=found.cut,
        )

    return answer(await here.hold.threads(read))


@router.post("/api/memory/forget", response_model=ForgottenOut)
async def forget(here: Here, caller: Admin, body: ForgetIn) -> Response:
    """Erase entries for good, with the contexts, digests and summaries that hold their words."""

    def write() -> ForgottenOut:
        with here.write_as(caller) as tx:
            done = forgetting.forget(here.hold, tx, body.entry_ids)
        here.hold.memory.follow()
        return ForgottenOut(**asdict(done))

    return answer(await here.hold.threads(write))


@router.get("/api/workspace/files", response_model=list[FileOut])
async def workspace_files(here: Here, caller: Caller, agent_id: AgentParam = None) -> Response:
    """The files of an agent's workspace that a person may edit."""
    agent = _owned(here, caller, agent_id)

    def read() -> list[FileOut]:
        found = files_of(here.hold, agent).listing()
        return [FileOut(path=one.path, bytes=one.size, updated_at=iso(one.at)) for one in found]

    return answers(await here.hold.threads(read))


@router.get("/api/workspace/file", response_model=WorkspaceTextOut)
async def workspace_file(
    here: Here,
    caller: Caller,
    path: PathParam,
    agent_id: AgentParam = None,
    at: Annotated[int | None, Query(ge=0, le=10**14, description="An earlier version of it.")] = None,
) -> Response:
    agent = _owned(here, caller, agent_id)

    def read() -> WorkspaceTextOut:
        files = files_of(here.hold, agent)
        text = files.read(path) if at is None else files.version(path, at)
        return WorkspaceTextOut(path=path, text=text, digest=digest(text))

    return answer(await here.hold.threads(read))


@router.put("/api/workspace/file", response_model=WorkspaceTextOut)
async def save_workspace_file(here: Here, caller: Admin, body: WorkspaceIn) -> Response:
    """Save a file whole, if it is still what was read; it is indexed at once. The text before is kept."""
    agent = _owned(here, caller, body.agent_id)

    def write() -> WorkspaceTextOut:
        files = files_of(here.hold, agent)
        files.save(body.path, body.text, before=body.before, now=here.hold.clock.now())
        with here.write_as(caller, ordered=False) as tx:
            audit.note(tx, "file.saved", f"{agent}/{body.path}")
        here.hold.memory.update(agent)
        return WorkspaceTextOut(path=body.path, text=body.text, digest=digest(body.text))

    return answer(await here.hold.threads(write))


@router.get("/api/workspace/history", response_model=list[VersionOut])
async def workspace_history(
    here: Here, caller: Caller, path: PathParam, agent_id: AgentParam = None
) -> Response:
    """The texts that a file had, newest first: what was saved here, and of notes all that was seen."""
    agent = _owned(here, caller, agent_id)

    def read() -> list[VersionOut]:
        found = files_of(here.hold, agent).history(path)
        return [VersionOut(at=v.at, since=iso(v.at), bytes=v.size, digest=v.hash) for v in found]

    return answers(await here.hold.threads(read))


def _owned(here: Gateway, caller: Principal, agent_id: str | None) -> str:
    """An agent whose files the caller may read: they are the owner's."""
    agent = _agent(here, caller, agent_id)
    if not caller.reader.may_read_of(FOR_OWNER, agent):
        raise NotFound(f"no agent {agent!r}", code="unknown_agent")
    return agent


def _agent(here: Gateway, caller: Principal, agent_id: str | None) -> str:
    """The agent that is asked for, if it is there and the caller may speak for it.

    Memory lies in no space, so that one limited to spaces sees none, as with sessions.
    """
    settings = here.hold.settings
    agent = settings.agent(agent_id or settings.default_agent_id).id
    if caller.spaces is not None or not caller.may_see_agent(agent):
        raise NotFound(f"no agent {agent!r}", code="unknown_agent")
    return agent
