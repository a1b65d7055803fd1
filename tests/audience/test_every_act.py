"""Whatever a person sends to whatever address: nothing changes that is not theirs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from urllib.parse import quote

import httpx
import pytest
from asking import Addresses, Known, Unknown
from marked_world import MAIN, World
from marks import HOLDERS, SPACE_A
from test_every_tool import Outside

ROLES: Final = ("admin", "member", "viewer", "other member")
# What an administrator is there for; tests/gateway/test_people.py has its limits.
OF_ADMINS: Final = ("/api/users", "/api/teams", "/api/invitations")
# What anybody who is logged in may do, and what needs nobody to be logged in.
OF_ALL: Final = frozenset({"/api/logout"})
IDS: Final = {
    "/api/log": "entries",
    "/api/topics": "topics",
    "/api/tasks": "tasks",
    "/api/attachments": "attachments",
    "/api/cron": "standing_tasks",
    "/api/chains": "turns",
    "/api/approvals": "approvals",
    "/api/deliveries": "outbox",
    "/api/tokens": "tokens",
    "/api/providers": "users",
    "/api/users": "users",
    "/api/teams": "teams",
    "/api/invitations": "invitations",
    "/api/me/sessions": "page_sessions",
    "/api/me/tokens": "tokens",
    "/api/me/away": "users",
    "/api/continuation": "continuation_records.record_id",
    "/api/spaces": "spaces",
}
NAMED: Final = {"channel": "pier", "agent": "main", "name": "mine", "number": "1", "profile": "default"}
SAID: Final[dict[str, Any]] = {
    "sessionKey": MAIN,
    "key": MAIN,
    "spaceId": SPACE_A,
    "agentId": "main",
    "audience": "anyone",
    "model": "holdfast/main",
    "schedule": {"every": "5h"},
    "login": "mallory",
    "password": "a long enough password",
    "pattern": "echo *",
    "messages": [{"role": "user", "content": "say all you know"}],
    "input": "say all you know",
}
BODIES: Final[dict[str, dict[str, Any]]] = {
    "/api/config": {"gateway": {"port": 1}},
    "/api/login": {"login": "mallory", "password": "a long enough password"},
    "/api/share": {"sessionKey": MAIN, "audience": "anyone"},
}


@dataclass(frozen=True)
class Foreign:
    """Names of everything in a home that is not this person's."""

    world: World
    holder: str

    @cached_property
    def known(self) -> Known:
        return Known(self.world)

    def ids(self, table: str) -> list[str]:
        if table in ("entries", "topics", "tasks", "attachments", "turns"):
            found = self.world.rows(f"SELECT id, audience FROM {table} ORDER BY audience, id")
            return [id_ for id_, audience in found if not HOLDERS[self.holder].may_read(audience)][::7][:12]
        name, _, column = table.partition(".")
        return self.world.ids(name, column or "id")[:8]

    @cached_property
    def keys(self) -> list[str]:
        found = self.world.rows("SELECT key, audience FROM sessions ORDER BY created_at")
        return [key for key, audience in found if not HOLDERS[self.holder].may_read(audience)][::3][:8]

    def in_path(self, template: str, name: str) -> list[str]:
        if name == "id":
            table = next((IDS[one] for one in IDS if template.startswith(f"{one}/{{id}}")), None)
            if table is None:
                raise Unknown(f"{template}: which ids are these? Add the address to IDS in {__file__}.")
            return self.ids(table)
        if name in ("runId", "responseId"):
            return [f"resp_{id_}" if name == "responseId" else id_ for id_ in self.ids("turns")]
        if name in ("user", "code"):
            return self.ids({"user": "users", "code": "channel_pairings.code"}[name])
        if name == "key":
            return self.keys
        if name not in NAMED:
            raise Unknown(f"{template}: what is {{{name}}}? Add it to NAMED in {__file__}.")
        return [NAMED[name]]

    def value(self, name: str, schema: dict[str, Any], spec: dict[str, Any]) -> Any:
        """Something that a field takes; where it can name something, what is another's."""
        tables = {"topicId": "topics", "taskId": "tasks", "entryId": "entries", "relatedLogId": "entries"}
        if name in tables:
            return self.ids(tables[name])[0]
        if name in SAID:
            return SAID[name]
        if "$ref" in schema:
            return self.value(name, spec["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]], spec)
        options = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
        if options:
            return self.value(name, options[0], spec)
        if "enum" in schema or "const" in schema:
            return schema.get("const", (schema.get("enum") or [None])[-1])
        match schema.get("type"):
            case "integer" | "number":
                return max(1, int(schema.get("minimum", 1)))
            case "boolean":
                return True
            case "array":
                return [self.value(name.removesuffix("s"), schema.get("items", {}), spec)]
            case "object":
                return self.body(schema, spec, every=False)
        return "mine now"

    def body(self, schema: dict[str, Any], spec: dict[str, Any], *, every: bool) -> dict[str, Any]:
        if "$ref" in schema:
            schema = spec["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
        needed = schema.get("required", ())
        fields = schema.get("properties", {}).items()
        return {name: self.value(name, one, spec) for name, one in fields if every or name in needed}


@dataclass(frozen=True)
class Act:
    method: str
    template: str
    path: str
    body: dict[str, Any] | None
    query: dict[str, str]

    def send(self, client: httpx.Client) -> httpx.Response:
        return client.request(self.method, self.path, json=self.body, params=self.query)


def acts(world: World, holder: str) -> Iterator[Act]:
    """Every address that can be sent something, with all that is another's in it."""
    spec, foreign = Addresses(world).spec, Foreign(world, holder)
    for template, methods in spec["paths"].items():
        for method in methods.keys() - {"get", "parameters"}:
            asked = methods[method].get("parameters", [])
            places = [one["name"] for one in asked if one["in"] == "path"]
            query = {one["name"]: SAID.get(one["name"], "main") for one in asked if one.get("required")}
            query = {name: value for name, value in query.items() if name not in places}
            for body in _bodies(foreign, template, methods[method], spec):
                for values in itertools.product(*(foreign.in_path(template, name) for name in places)):
                    path = template
                    for name, value in zip(places, values, strict=True):
                        path = path.replace(f"{{{name}}}", quote(value, safe=""))
                    yield Act(method.upper(), template, path, body, query)


def _bodies(
    foreign: Foreign, template: str, operation: dict[str, Any], spec: dict[str, Any]
) -> list[dict[str, Any] | None]:
    content = operation.get("requestBody", {}).get("content", {})
    if "application/json" not in content:
        return [None]
    if template in BODIES:
        return [BODIES[template]]
    schema = content["application/json"]["schema"]
    return [foreign.body(schema, spec, every=every) for every in (False, True)]


@pytest.mark.parametrize("holder", ROLES)
def test_no_person_changes_what_is_not_theirs(world: World, holder: str) -> None:
    world.settle()
    before = Outside.for_reader(world, HOLDERS[holder])
    asked = len(world.model.requests)
    done: dict[str, set[int]] = {}
    leaks: dict[str, list[str]] = {}
    with world.client(holder) as client:
        for act in list(acts(world, holder)):
            if holder == "admin" and act.template.startswith(OF_ADMINS):
                continue
            answer = act.send(client)
            assert answer.status_code < 500, (act, answer.text)
            done.setdefault(f"{act.method} {act.template}", set()).add(answer.status_code)
            found = world.marks.leaked(answer.text, HOLDERS[holder])
            if found:
                leaks[f"{act.method} {act.path}"] = found
    world.settle()
    assert not leaks
    after = Outside.for_reader(world, HOLDERS[holder])
    assert after.files == before.files
    assert not {name: rows for name, rows in before.changed(after).items() if rows}
    for one in world.model.requests[asked:]:
        assert not world.marks.leaked(str(one.body), HOLDERS[holder])
    if holder == "viewer":
        went = {name for name, codes in done.items() if any(code < 300 for code in codes)}
        assert {name.split()[1] for name in went} <= OF_ALL
        # A refusal says something only where it is not the form of the request that was refused.
        assert not [name for name, codes in done.items() if codes <= {400, 422}]
