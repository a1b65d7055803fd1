"""What can be asked of a gateway: every address that it serves, filled with all that is known of a home.

Addresses are found in the gateway itself. What each parameter can be filled with is written down here; an
address with a parameter of which nothing is known fails, so that nobody adds one past this suite.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx
from fastapi.routing import iter_route_contexts
from marked_world import DESK, MAIN, ONE, SPOKEN, World
from marks import SPACE_A, SPACE_B, SURFACES

T = TypeVar("T")

HOSTILE: Final = ("..", "%2e%2e%2fholdfast.json", "agent:main:main", "*", "' OR 1=1 --")
PATHS: Final = ("MEMORY.md", "USER.md", "SOUL.md", "memory/2026-03-02.md", "memory/lasting.md")
MORE_PATHS: Final = (
    "qmd/library/book.md",
    "library/book.md",
    "skills/sauna/SKILL.md",
    "../holdfast.json",
    "plans/shared.md",
    "/",
)

# What stands for `{id}`, by the address before it. Add a new one here, with the table that its ids are in.
ID_OF: Final = {
    "/api/log/": "entries",
    "/api/topics/": "topics",
    "/api/tasks/": "tasks",
    "/api/attachments/": "attachments",
    "/api/classifier/decisions/": "entries",
    "/api/cron/": "standing_tasks",
    "/api/chains/": "turns",
    "/api/sessions/{key}/outputs/": "outputs",
    "/api/teams/": "teams",
}
# Parameters that change how much is told, never whose: always sent as wide as can be.
WIDE: Final[dict[str, str]] = {
    "limit": "400",
    "live": "false",
    "includeRaw": "true",
    "includePending": "true",
    "explain": "true",
    "ready": "true",
    "timeoutMs": "0",
    "minScore": "0",
    "maxResults": "100",
    "maxChars": "12000",
    "workingSetLimit": "40",
    "timelineLimit": "40",
    "limitTopics": "100",
    "limitTasks": "100",
    "limitLogs": "400",
    "maxEntities": "400",
    "maxNodes": "400",
    "minEdgeWeight": "0",
    "chars": "100000",
    "anew": "true",
    "days": "92",
    "refresh": "false",
}
# Parameters that only turn pages: what they would show is on the first page, or on the next of the same.
PAGES: Final = frozenset({"offset", "cursor", "before", "after", "from", "lines", "sinceSeq"})


class Unknown(AssertionError):
    """The suite does not know what to ask with: somebody added an address, and must say so here."""


@dataclass(frozen=True, slots=True)
class Question:
    """One request; `key` is the session that it asks for, if it does."""

    template: str
    path: str
    query: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> str | None:
        return dict(self.query).get("sessionKey")

    @property
    def target(self) -> str:
        """As it stands in the first line of the request."""
        return _target(self.path, self.query)


@cache
def _target(path: str, query: tuple[tuple[str, str], ...]) -> str:
    return httpx.URL(path, params=dict(query)).raw_path.decode()


def _some(alike: list[T]) -> list[T]:
    """The oldest and the newest."""
    return [*alike[:3], *alike[-3:]]


@dataclass
class Known:
    """Ids of everything in a home, by kind."""

    world: World

    @cached_property
    def sessions(self) -> list[str]:
        """Keys, then ids, of every chat that was spoken in, and some of each kind and audience: tests make
        new ones."""
        kinds: dict[tuple[str, ...], list[tuple[str, str]]] = {}
        for key, id_, audience in self.world.rows(
            "SELECT key, id, audience FROM sessions ORDER BY created_at"
        ):
            kind = key if key in SURFACES else ":".join(key.split(":")[:3])
            kinds.setdefault((audience, kind), []).append((key, id_))
        found = [one for alike in kinds.values() for one in _some(alike)]
        return list(dict.fromkeys([*(key for key, _ in found), *(id_ for _, id_ in found)]))

    def ids(self, table: str) -> list[str]:
        """Some of each audience, or all where they are few."""
        if table == "outputs":
            folder = self.world.hold.home.path / "agents"
            return [path.name.split(".")[1] for path in sorted(folder.glob("*/outputs/*.txt"))]
        if table not in ("entries", "turns"):
            return self.world.ids(table)
        by_mark = "SELECT id, audience FROM {} ORDER BY audience, id"
        found: dict[str, list[str]] = {}
        for id_, audience in self.world.rows(by_mark.format(table)):
            found.setdefault(audience, []).append(id_)
        return [id_ for ids in found.values() for id_ in _some(ids)]

    def in_path(self, template: str, name: str) -> Sequence[str]:
        if template.startswith("/api/agents/"):
            return ("main", "beta", "none")
        if name == "id":
            for before in sorted(ID_OF, key=len, reverse=True):
                if template.startswith(f"{before}{{id}}"):
                    return self.ids(ID_OF[before])
            raise Unknown(f"{template}: which ids are these? Add the address to ID_OF in {__file__}.")
        match name:
            case "runId":
                return self.ids("turns")
            case "responseId":
                return [f"resp_{id_}" for id_ in self.ids("turns")]
            case "key":
                return self.sessions
            case "number":
                return ("1", "2")
            case "pluginId":
                return ("kit", "none")
            case "path":
                return ("state", "none")
            case "name":
                return ("sauna", "none")
            case "model":
                return ("scripted/scripted", "main", "beta")
        raise Unknown(f"{template}: what is {{{name}}}? Add it to Known.in_path in {__file__}.")

    def in_query(self, template: str, name: str, schema: Mapping[str, Any]) -> Sequence[str]:
        """What a parameter that tells whose or which is tried with; none of those that are always wide."""
        hooks = [one.hook for one in self.world.marks.all]
        match name:
            case "sessionKey":
                return [*SPOKEN, *self.sessions[7:12], f"{ONE}:thread:1", "channel:pier", *HOSTILE[:1]]
            case "q":
                return ["sauna", " ".join(hooks), *hooks, *HOSTILE[3:]]
            case "spaceId":
                return [SPACE_A, SPACE_B, "space-default", "space-none"]
            case "allowedSpaceIds":
                return [SPACE_A, f"{SPACE_A},{SPACE_B}", f"{SPACE_A},{SPACE_B},space-default", "space-b"]
            case "agentId":
                return ["main", "beta"]
            case "act":
                return ["login", "token", "shared"]
            case "state" | "code" | "error":
                return HOSTILE
            case "surface":
                return ["page", "api", "local"]
            case "onBehalfOf":
                return ["owner", "user:member"]
            case "actor":
                return ["owner", *HOSTILE[2:]]
            case "since" | "until":
                return ["0", str(2**62)]
            case "dueBefore":
                return ["2999-01-01T00:00:00Z"]
            case "topicId":
                return self.ids("topics")
            case "taskId":
                return self.ids("tasks")
            case "turnId":
                return self.ids("turns")
            case "relatedLogId":
                return [",".join(self.ids("entries"))]
            case "path":
                own = [f"sessions/{id_}.md" for id_ in self.ids("entries")]
                return [*PATHS, *MORE_PATHS, *own]
            case "name":
                return ["sauna"]
            case "target":
                return ["home", *self.world.ids("outbox", "target")]
            case "call":
                return ["0", "1"]
            case "entryId":
                return self.ids("entries")
            case "channel":
                return ["pier", "none"]
            case "at":
                return ["0"]
            case "status" | "type" | "classificationStatus" | "mode" | "askedBy":
                return _choices(template, name, schema)
        raise Unknown(f"{template}?{name}=: with what? See WIDE, PAGES and Known.in_query in {__file__}.")


def _choices(template: str, name: str, schema: Mapping[str, Any]) -> list[str]:
    parts = [schema, *schema.get("anyOf", ())]
    found = [str(value) for part in parts for value in part.get("enum", ())]
    if not found:
        raise Unknown(f"{template}?{name}=: it is no choice any more; see Known.in_query in {__file__}.")
    return found


@dataclass
class Addresses:
    """The GET addresses of a gateway and their parameters, from its own description and its routes."""

    world: World
    spec: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.spec = self.world.api.get("/openapi.json").json()

    def operations(self) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        for template, methods in self.spec["paths"].items():
            if "get" in methods:
                yield template, methods["get"].get("parameters", [])
        for template in self._unlisted():
            names = [part.strip("{}") for part in template.split("/") if part.startswith("{")]
            yield template, [{"name": name, "in": "path", "schema": {}} for name in names]

    def _unlisted(self) -> Iterator[str]:
        """What is served and not described."""
        for context in iter_route_contexts(self.world.gateway.app.router.routes):
            path, methods = getattr(context, "path", None), getattr(context, "methods", None) or ()
            plain = None if path is None else path.replace(":path}", "}")
            if plain is not None and "GET" in methods and plain not in self.spec["paths"]:
                yield plain

    def questions(self) -> Iterator[Question]:
        known = Known(self.world)
        for template, parameters in self.operations():
            if template == "/api/stream":
                continue  # it does not end: see test_live_events
            yield from self._questions(known, template, parameters)

    def _questions(self, known: Known, template: str, parameters: list[dict[str, Any]]) -> Iterator[Question]:
        in_path = [p["name"] for p in parameters if p["in"] == "path"]
        query = {p["name"]: p for p in parameters if p["in"] == "query"}
        wide = {name: WIDE[name] for name in query if name in WIDE}
        told = {
            name: known.in_query(template, name, self._schema(p["schema"]))
            for name, p in query.items()
            if name not in WIDE and name not in PAGES
        }
        needed = {name: told[name][0] for name, p in query.items() if p.get("required") and name in told}
        filled = list(itertools.product(*(known.in_path(template, name) for name in in_path)))
        for number, values in enumerate(filled):
            path = template
            for name, value in zip(in_path, values, strict=True):
                path = path.replace(f"{{{name}}}", quote(value, safe="/" if name == "model" else ""))
            base = wide | needed
            asked = [base] if number >= 3 else [base, *_varied(base, told)]
            yield from (Question(template, path, tuple(one.items())) for one in asked)

    def _schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        refs = [schema, *schema.get("anyOf", ())]
        found = [self.spec["components"]["schemas"][r["$ref"].rsplit("/", 1)[1]] for r in refs if "$ref" in r]
        return found[0] if found else schema


def _varied(base: dict[str, str], told: Mapping[str, Sequence[str]]) -> Iterator[dict[str, str]]:
    """Each parameter with each of its values; a question is asked from every chat."""
    for name, values in told.items():
        yield from (base | {name: value} for value in values)
    if {"q", "sessionKey"} <= told.keys():
        for key in (MAIN, DESK, *[one for one in SPOKEN if one not in (MAIN, DESK)]):
            yield base | {"q": told["q"][1], "sessionKey": key}
    if {"path", "sessionKey"} <= told.keys():
        for key in SPOKEN:
            yield from (base | {"path": path, "sessionKey": key} for path in told["path"][:12])
