"""Who may read and write over the gateway: by the audience of things, whatever route is asked."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import httpx
import pytest
from fastapi import APIRouter
from fastapi import Path as Param
from serving import Running, assert_problem, make_token, streaming

import holdfast.gateway
from builders import accept, append, session
from holdfast.gateway.context import Caller, Here
from holdfast.gateway.contract import answer
from holdfast.gateway.tokens import Scope
from holdfast.gateway.wire import entry_out
from holdfast.log import OWNER, Audience, entries, entry_model, for_space, sessions
from holdfast.runtime import Holdfast

PRIVATE = "agent:main:main"
GROUP = "agent:main:discord:group:42"


@pytest.fixture
def spaces(api: httpx.Client) -> None:
    for name in ("Mine", "Other"):
        assert api.post("/api/spaces", json={"name": name}).status_code == 201


@pytest.fixture
def limited(gateway: Running, spaces: None) -> Iterator[httpx.Client]:
    """Who holds the space `Mine`, and nothing else."""
    with gateway.client(make_token(gateway.hold.store, "guest", spaces=["space-mine"])) as client:
        yield client


@pytest.fixture
def beta(gateway: Running) -> Iterator[httpx.Client]:
    """Who holds the agent `beta`, and may administer it."""
    with gateway.client(make_token(gateway.hold.store, "beta", Scope.ADMIN, agents=["beta"])) as client:
        yield client


def said(gateway: Running, text: str, **known: Any) -> str:
    return append(gateway.hold.store, text, **known).id


class TestReading:
    def test_a_new_route_in_the_style_of_the_house_shows_no_more_than_the_others(
        self, gateway: Running, limited: httpx.Client, api: httpx.Client
    ) -> None:
        router = APIRouter()

        @router.get("/api/words/{id}", include_in_schema=False)
        async def words(here: Here, caller: Caller, id_: Annotated[str, Param(alias="id")]) -> Any:
            def read() -> entry_model.Entry:
                with here.read_as(caller) as tx:
                    return entries.get(tx, id_)

            return answer(entry_out(await here.hold.threads(read)))

        gateway.app.router.routes.extend(router.routes)
        theirs = said(gateway, "of another space", space_id="space-other", audience=for_space("space-other"))
        own = said(gateway, "of this space", space_id="space-mine", audience=for_space("space-mine"))
        assert_problem(limited.get(f"/api/words/{theirs}"), 404, "unknown_entry")
        assert limited.get(f"/api/words/{own}").json()["content"] == "of this space"
        assert api.get(f"/api/words/{theirs}").json()["content"] == "of another space"

    def test_a_space_that_something_is_sorted_into_opens_nothing(
        self, gateway: Running, limited: httpx.Client, api: httpx.Client
    ) -> None:
        """What it is about is not who may read it."""
        topic = api.post("/api/topics", json={"name": "shared", "spaceId": "space-mine"}).json()["id"]
        assert limited.get(f"/api/topics/{topic}").json()["audience"] == "space:space-mine"
        secret = said(gateway, "a secret quokka", session_key=PRIVATE, space_id="space-mine", topic_id=topic)
        for path in (
            "/api/log",
            "/api/log?spaceId=space-mine",
            f"/api/topics/{topic}/thread",
            "/api/changes",
        ):
            assert "secret" not in limited.get(path).text
        assert_problem(limited.get(f"/api/log/{secret}"), 404, "unknown_entry")
        assert_problem(limited.get(f"/api/classifier/decisions/{secret}"), 404, "unknown_entry")

    def test_with_a_sessions_key_everything_is_read_as_its_surface(
        self, gateway: Running, api: httpx.Client
    ) -> None:
        """Whoever holds the token: that is where the block will stand."""
        topic = api.post("/api/topics", json={"name": "private quokkas"}).json()["id"]
        task = api.post("/api/tasks", json={"title": "feed them", "topicId": topic}).json()["id"]
        for key in (GROUP, "agent:Main:discord:group:42", f"{GROUP}:thread:1", "agent::"):
            assert api.get("/api/topics", params={"sessionKey": key}).json() == []
            assert api.get("/api/tasks", params={"sessionKey": key}).json() == []
        blanks = api.get("/api/topics", params={"sessionKey": f" {GROUP} "})
        assert_problem(blanks, 422, "invalid_input")
        assert_problem(api.get(f"/api/topics/{topic}?sessionKey={GROUP}"), 404, "unknown_topic")
        assert_problem(api.get(f"/api/tasks/{task}?sessionKey={GROUP}"), 404, "unknown_task")
        assert "private quokkas" in api.get(f"/api/topics?sessionKey={PRIVATE}").text

    def test_the_chat_of_a_shared_topic_is_read_as_those_whom_it_is_shared_with(
        self, gateway: Running, limited: httpx.Client, api: httpx.Client
    ) -> None:
        api.post("/api/topics", json={"name": "private quokkas"})
        shared = api.post("/api/topics", json={"name": "shared", "spaceId": "space-mine"}).json()["id"]
        for key in (f"clawboard:topic:{shared}", f"agent:main:clawboard:topic:{shared}"):
            assert [t["name"] for t in api.get("/api/topics", params={"sessionKey": key}).json()] == [
                "shared"
            ]

    def test_a_surface_that_the_owner_declared_private_reads_as_the_owner(
        self, gateway: Running, api: httpx.Client
    ) -> None:
        api.post("/api/topics", json={"name": "private quokkas"})
        assert api.get(f"/api/topics?sessionKey={GROUP}").json() == []
        gateway.hold.config.patch({"channels": {"discord": {"private": ["42"]}}})
        assert len(api.get(f"/api/topics?sessionKey={GROUP}").json()) == 1

    def test_routes_say_neither_who_the_system_is_nor_open_the_store_themselves(self) -> None:
        """Who reads is the caller. What is read for nobody is listed here, with the reason."""
        allowed = {
            "tokens.py": "who may call is asked before there is a caller",
            "metrics.py": "figures about the whole home, for tokens without limits",
            "app.py": "the config has changed: nobody's request",
        }
        folder = Path(holdfast.gateway.__file__).parent
        for path in sorted(folder.rglob("*.py")):
            where = str(path.relative_to(folder))
            for node in ast.walk(ast.parse(path.read_text())):
                names = {getattr(node, "id", None), getattr(node, "attr", None)}
                if isinstance(node, ast.ImportFrom):
                    names |= {alias.name for alias in node.names}
                if where not in allowed:
                    assert not names & {"SYSTEM", "OWNER"}, where
                assert where == "context.py" or "reading_as" not in names, where
                if where.startswith(("routes/", "rpc/")) and isinstance(node, ast.Attribute):
                    opened = (
                        node.attr in ("read", "write", "run") and getattr(node.value, "attr", "") == "store"
                    )
                    assert not opened, f"{where}:{node.lineno}"


class TestRecall:
    """The same for what is found by meaning, and for the block that goes into a prompt."""

    FOUND = ("/api/context?mode=full&q=quokka", "/api/search?q=quokka", "/api/graph?")

    def test_with_a_sessions_key_everything_is_recalled_as_its_surface(
        self, gateway: Running, api: httpx.Client
    ) -> None:
        said(gateway, "the private quokka plan", session_key=PRIVATE)
        said(gateway, "the open quokka plan", session_key=GROUP, audience=Audience("group:discord::42"))
        api.post("/api/topics", json={"name": "private quokkas"})
        for path in self.FOUND:
            asked = api.get(f"{path}&sessionKey={GROUP}").text
            assert "private quokka" not in asked, path
        assert "the private quokka" in api.get(f"{self.FOUND[0]}&sessionKey={PRIVATE}").text

    def test_a_space_that_something_is_sorted_into_opens_nothing(
        self, gateway: Running, limited: httpx.Client
    ) -> None:
        said(gateway, "a secret quokka", session_key=PRIVATE, space_id="space-mine")
        for path in self.FOUND:
            assert "secret" not in limited.get(path).text

    def test_an_agents_token_finds_no_topics_of_others(self, beta: httpx.Client, api: httpx.Client) -> None:
        api.post("/api/topics", json={"name": "quokka divorce", "digest": "what main was told"})
        for path in self.FOUND:
            assert "divorce" not in beta.get(path).text
            assert "what main" not in beta.get(path).text


class TestWriting:
    def test_nobody_writes_under_a_key_that_is_not_theirs(
        self, gateway: Running, limited: httpx.Client, api: httpx.Client
    ) -> None:
        """The same answer whether or not there is such a session."""
        session(gateway.hold.store, PRIVATE)
        said(gateway, "what was said", session_key="a-conversation")
        topic = api.post("/api/topics", json={"name": "theirs", "spaceId": "space-other"}).json()["id"]
        for key in (
            PRIVATE,
            "agent:main:nothing-here",
            "agent:Main:main",
            GROUP,
            "a-conversation",
            f"clawboard:topic:{topic}",
            f"agent:main:clawboard:topic:{topic}",
            "clawboard:topic:nothing-here",
            " agent:main:main",
        ):
            body = {"content": "x", "spaceId": "space-mine", "source": {"sessionKey": key}}
            for path, sent in (("/api/log", body), ("/api/ingest", [body]), ("/api/ingest", body)):
                assert_problem(limited.post(path, json=sent), 403, "session_forbidden")
            for path, sent in (
                ("bootstrap", {"sessionKey": key}),
                ("ingest", {"sessionKey": key, "message": {"role": "user", "content": "x"}}),
                ("ingestBatch", {"sessionKey": key, "messages": [{"role": "user", "content": "x"}]}),
            ):
                if key == key.strip():
                    assert_problem(limited.post(f"/api/engine/{path}", json=sent), 403, "session_forbidden")
            sent = {"sessionKey": key, "topicId": topic}
            assert limited.post("/api/classifier/session-routing", json=sent).status_code in (403, 404)
        assert [row["content"] for row in api.get("/api/log").json()] == ["what was said"]

    def test_a_token_of_a_space_writes_for_that_space(self, gateway: Running, limited: httpx.Client) -> None:
        body = {"content": "x", "spaceId": "space-mine"}
        made = limited.post("/api/log", json=body | {"source": {"sessionKey": "my-conversation"}})
        assert made.status_code == 201, made.text
        assert made.json()["audience"] == "space:space-mine"
        again = limited.post("/api/log", json=body | {"source": {"sessionKey": "my-conversation"}})
        assert again.status_code == 201, again.text
        wider = body | {"source": {"audience": "anyone"}}
        assert_problem(limited.post("/api/log", json=wider), 403, "audience_forbidden")
        topic = limited.post("/api/topics", json={"name": "t", "spaceId": "space-mine"}).json()
        assert topic["audience"] == "space:space-mine"
        chat = {"content": "x", "source": {"sessionKey": f"clawboard:topic:{topic['id']}"}}
        assert limited.post("/api/log", json=chat).json()["audience"] == "space:space-mine"
        task = limited.post("/api/tasks", json={"title": "t", "topicId": topic["id"]}).json()
        assert task["audience"] == "space:space-mine"

    def test_a_batch_keeps_the_audience_that_it_was_accepted_with(
        self, gateway: Running, limited: httpx.Client, api: httpx.Client
    ) -> None:
        mine = {"content": "by the guest", "spaceId": "space-mine"}
        assert limited.post("/api/ingest", json=[mine]).status_code == 202
        group = {"content": "in the group", "source": {"sessionKey": GROUP}}
        assert api.post("/api/ingest", json=[group, {"content": "alone"}]).status_code == 202
        from serving import wait_for

        wait_for(lambda: len(api.get("/api/log").json()) == 3)
        audiences = {row["content"]: row["audience"] for row in api.get("/api/log").json()}
        assert audiences == {
            "by the guest": "space:space-mine",
            "in the group": "group:discord::42",
            "alone": "owner",
        }

    def test_what_the_owner_puts_into_a_space_by_name_is_shared_if_the_space_is(
        self, gateway: Running, api: httpx.Client, spaces: None
    ) -> None:
        before = api.post("/api/log", json={"content": "before", "spaceId": "space-mine"}).json()
        assert before["audience"] == "owner"
        token = make_token(gateway.hold.store, "guest", spaces=["space-mine"])
        after = api.post("/api/log", json={"content": "after", "spaceId": "space-mine"}).json()
        assert after["audience"] == "space:space-mine"
        tagged = api.post("/api/topics", json={"name": "by a tag", "tags": ["Mine"]}).json()
        assert (tagged["spaceId"], tagged["audience"]) == ("space-mine", "owner")
        with gateway.client(token) as limited:
            assert [row["content"] for row in limited.get("/api/log").json()] == ["after"]
            assert limited.get("/api/topics").json() == []

    def test_a_host_may_narrow_and_only_an_administrator_widen(
        self, gateway: Running, api: httpx.Client
    ) -> None:
        narrow = {"content": "x", "source": {"sessionKey": GROUP, "audience": "owner"}}
        wide = {"content": "x", "source": {"sessionKey": PRIVATE, "audience": "anyone"}}
        with gateway.client(make_token(gateway.hold.store, "host")) as host:
            assert host.post("/api/log", json=narrow).json()["audience"] == "owner"
            assert_problem(host.post("/api/log", json=wide), 403, "audience_forbidden")
        assert api.post("/api/log", json=wide).json()["audience"] == "anyone"

    def test_files_go_with_their_entry_or_their_space(
        self, gateway: Running, limited: httpx.Client, api: httpx.Client
    ) -> None:
        file = {"files": ("a.txt", b"words", "text/plain")}
        private = said(gateway, "private", space_id="space-mine")
        for params in ({"spaceId": "space-other"}, {"logId": private}, {}):
            kept = api.post("/api/attachments", files=file, params=params).json()[0]["id"]
            assert_problem(limited.get(f"/api/attachments/{kept}"), 404, "unknown_attachment")
            assert_problem(limited.delete(f"/api/attachments/{kept}"), 404, "unknown_attachment")
        for by in (api, limited):
            shared = by.post("/api/attachments", files=file, params={"spaceId": "space-mine"}).json()[0]["id"]
            assert limited.get(f"/api/attachments/{shared}").content == b"words"
        refused = limited.post("/api/attachments", files=file, params={"logId": private})
        assert_problem(refused, 404, "unknown_entry")


class TestAgentTokens:
    """A token limited to the agent `beta`."""

    def test_it_writes_only_under_its_agents_keys(self, gateway: Running, beta: httpx.Client) -> None:
        own = {"content": "x", "agentId": "beta"}
        assert beta.post("/api/log", json=own).status_code == 201
        assert (
            beta.post("/api/log", json=own | {"source": {"sessionKey": "agent:beta:main"}}).status_code == 201
        )
        for key in (PRIVATE, "agent:main:none", "a-conversation", "clawboard:topic:t", "channel:discord"):
            sent = own | {"source": {"sessionKey": key}}
            assert_problem(beta.post("/api/log", json=sent), 403, "session_forbidden")
            assert_problem(beta.post("/api/ingest", json=[sent]), 403, "session_forbidden")
            sent = {"sessionKey": key, "message": {"role": "user", "content": "x"}}
            assert_problem(beta.post("/api/engine/ingest", json=sent), 403, "session_forbidden")

    def test_it_changes_nothing_that_is_the_owners(
        self, gateway: Running, beta: httpx.Client, api: httpx.Client
    ) -> None:
        api.post("/api/spaces", json={"name": "Mine"})
        topic = api.post("/api/topics", json={"name": "t", "spaceId": "space-mine"}).json()["id"]
        task = api.post("/api/tasks", json={"title": "t", "topicId": topic}).json()["id"]
        session(gateway.hold.store, PRIVATE)
        for method, path, body, status in (
            ("PATCH", "/api/spaces/space-mine/connectivity", {"defaultVisible": False}, 403),
            ("POST", "/api/spaces", {"name": "New"}, 403),
            ("PATCH", f"/api/topics/{topic}", {"spaceId": "space-default"}, 404),
            ("DELETE", f"/api/topics/{topic}", None, 404),
            ("PATCH", f"/api/tasks/{task}", {"title": "x"}, 404),
            ("POST", "/api/topics/reorder", {"orderedIds": [topic]}, 404),
            ("POST", "/api/classifier/session-routing", {"sessionKey": PRIVATE, "topicId": topic}, 403),
            ("POST", "/api/cron", {"prompt": "p", "every": "1h", "agentId": "beta"}, 403),
            ("POST", "/api/heartbeat/beta/now", {}, 403),
            ("POST", "/api/allowlist", {"agentId": "beta", "pattern": "rm *"}, 403),
            ("PUT", f"/api/sessions/{PRIVATE}/space", {"spaceId": "space-mine"}, 403),
            ("POST", "/api/share", {"topicId": topic, "audience": "anyone"}, 403),
            ("POST", f"/api/sessions/{PRIVATE}/reset", None, 404),
            ("PATCH", "/api/config", {}, 403),
        ):
            answer = beta.request(method, path, json=body)
            assert answer.status_code == status, (method, path, answer.text)
            assert answer.json()["code"]
            assert status == 404 or answer.json()["hint"]

    def test_it_learns_nothing_of_topics_that_were_not_named_after_its_agent(
        self, gateway: Running, beta: httpx.Client, api: httpx.Client
    ) -> None:
        topic = api.post("/api/topics", json={"name": "divorce", "digest": "what main was told"}).json()["id"]
        for path in ("/api/topics", "/api/changes"):
            assert "divorce" not in beta.get(path).text
            assert "what main" not in beta.get(path).text
        api.delete(f"/api/topics/{topic}")
        assert "divorce" not in beta.get("/api/changes").text
        assert topic not in beta.get("/api/changes").text


class TestFollowing:
    def test_what_may_not_be_read_is_not_told_not_even_that_it_goes(
        self, gateway: Running, limited: httpx.Client, api: httpx.Client
    ) -> None:
        store = gateway.hold.store
        with streaming(limited) as seen:
            private = said(gateway, "private", space_id="space-mine", session_key=PRIVATE)
            api.delete(f"/api/log/{private}")
            topic = api.post("/api/topics", json={"name": "gone", "tags": ["Mine"]}).json()["id"]
            api.delete(f"/api/topics/{topic}")
            accept(store, key="one", to=PRIVATE)
            end = said(gateway, "the end", space_id="space-mine", audience=for_space("space-mine"))
            told = next(seen)
            assert (told["entityId"], told["data"]["content"]) == (end, "the end")
        named = {change["entityId"] for change in limited.get("/api/changes").json()}
        assert named == {end, "space-mine"}

    def test_a_deletion_of_what_could_be_read_is_told(
        self, gateway: Running, limited: httpx.Client, api: httpx.Client
    ) -> None:
        end = said(gateway, "shared", space_id="space-mine", audience=for_space("space-mine"))
        api.delete(f"/api/log/{end}")
        kinds = [c["type"] for c in limited.get("/api/changes").json() if c["entityId"] == end]
        assert kinds == ["log.deleted"]

    def test_the_events_of_a_run_are_for_who_may_read_its_session(
        self, gateway: Running, limited: httpx.Client, beta: httpx.Client
    ) -> None:
        turn = accept(gateway.hold.store, key="one", to=PRIVATE)
        for path in ("", "/wait?timeoutMs=0", "/events"):
            for caller in (limited, beta):
                assert_problem(caller.get(f"/api/agent/{turn.id}{path}"), 404, "unknown_run")


class TestSharing:
    def test_sharing_lets_others_read_and_is_in_the_trail(
        self, gateway: Running, limited: httpx.Client, api: httpx.Client
    ) -> None:
        entry = said(gateway, "to be shared", space_id="space-mine")
        assert_problem(limited.get(f"/api/log/{entry}"), 404, "unknown_entry")
        done = api.post("/api/share", json={"entryId": entry, "audience": "space:space-mine"})
        assert done.status_code == 200, done.text
        assert (done.json()["before"], done.json()["audience"]) == ("owner", "space:space-mine")
        assert limited.get(f"/api/log/{entry}").json()["audience"] == "space:space-mine"
        trail = api.get("/api/audit").json()[0]
        assert (trail["event"], trail["actor"]) == ("shared", "token:home")
        assert "owner" in trail["reason"]
        assert "space:space-mine" in trail["reason"]
        assert entry in trail["command"]
        narrower = api.post("/api/share", json={"entryId": entry, "audience": "owner"})
        assert_problem(narrower, 409, "audience_narrower")

    def test_what_is_shared_with_a_space_can_be_read_wherever_it_is_sorted(
        self, gateway: Running, limited: httpx.Client, api: httpx.Client
    ) -> None:
        entry = said(gateway, "in no space", session_key=PRIVATE)
        api.post("/api/share", json={"entryId": entry, "audience": "space:space-mine"})
        assert limited.get(f"/api/log/{entry}").status_code == 200
        assert [row["id"] for row in limited.get("/api/log").json()] == [entry]
        assert entry in {change["entityId"] for change in limited.get("/api/changes").json()}
        assert limited.get("/api/log", params={"spaceId": "space-mine"}).json() == []
        assert_problem(limited.patch(f"/api/log/{entry}", json={"summary": "x"}), 404, "unknown_entry")
        assert_problem(limited.delete(f"/api/log/{entry}"), 404, "unknown_entry")

    def test_a_topic_is_shared_with_what_was_said_under_it_only_if_asked(
        self, gateway: Running, limited: httpx.Client, api: httpx.Client
    ) -> None:
        topic = api.post("/api/topics", json={"name": "t", "tags": ["Mine"]}).json()["id"]
        said(gateway, "under it", topic_id=topic, space_id="space-mine")
        share = {"topicId": topic, "audience": "space:space-mine"}
        assert api.post("/api/share", json=share).json()["entries"] == 0
        assert limited.get(f"/api/topics/{topic}").json()["name"] == "t"
        assert limited.get(f"/api/topics/{topic}/thread").json() == []
        assert api.post("/api/share", json=share | {"withEntries": True}).json()["entries"] == 1
        assert len(limited.get(f"/api/topics/{topic}/thread").json()) == 1

    def test_a_session_is_shared_as_a_whole(
        self, gateway: Running, limited: httpx.Client, api: httpx.Client
    ) -> None:
        accept(gateway.hold.store, key="one", to=PRIVATE)
        share = {"sessionKey": PRIVATE, "audience": "space:space-mine"}
        assert api.post("/api/share", json=share).json()["kind"] == "session"
        assert len(limited.get(f"/api/sessions/{PRIVATE}/transcript").json()) == 1
        for path in ("reset", "archive"):
            assert_problem(limited.post(f"/api/sessions/{PRIVATE}/{path}"), 404, "unknown_session")
        assert_problem(limited.get(f"/api/sessions/{PRIVATE}/outputs/x"), 404, "unknown_session")
        assert_problem(limited.get(f"/api/sessions/{PRIVATE}/turns/1/context"), 403, "forbidden")
        into = {"content": "x", "spaceId": "space-mine", "source": {"sessionKey": PRIVATE}}
        assert_problem(limited.post("/api/log", json=into), 403, "session_forbidden")
        run = limited.get(f"/api/sessions/{PRIVATE}/turns").json()
        assert run == [], "a turn keeps the audience that it was accepted with"

    @pytest.mark.parametrize(
        "body",
        [{"audience": "anyone"}, {"entryId": "e", "topicId": "t", "audience": "anyone"}, {"entryId": "e"}],
    )
    def test_one_thing_and_one_audience_are_named(self, api: httpx.Client, body: dict[str, str]) -> None:
        assert api.post("/api/share", json=body).status_code == 422

    def test_limited_tokens_share_nothing(self, gateway: Running, limited: httpx.Client) -> None:
        own = limited.post("/api/log", json={"content": "x", "spaceId": "space-mine"}).json()["id"]
        assert_problem(
            limited.post("/api/share", json={"entryId": own, "audience": "anyone"}), 403, "forbidden"
        )

    def test_a_session_is_put_into_a_space_by_a_person(
        self, gateway: Running, limited: httpx.Client, api: httpx.Client
    ) -> None:
        session(gateway.hold.store, GROUP)
        api.post("/api/topics", json={"name": "for the group", "spaceId": "space-mine"})
        assert api.get(f"/api/topics?sessionKey={GROUP}").json() == []
        given = api.put(f"/api/sessions/{GROUP}/space", json={"spaceId": "space-mine"})
        assert given.json()["spaceId"] == "space-mine"
        assert [t["name"] for t in api.get(f"/api/topics?sessionKey={GROUP}").json()] == ["for the group"]
        assert_problem(
            api.put(f"/api/sessions/{GROUP}/space", json={"spaceId": "space-none"}), 404, "unknown_space"
        )
        assert api.put(f"/api/sessions/{GROUP}/space", json={"spaceId": None}).json()["spaceId"] is None
        refused = limited.put(f"/api/sessions/{GROUP}/space", json={"spaceId": "space-mine"})
        assert_problem(refused, 403, "forbidden")
        with gateway.hold.store.read(OWNER) as tx:
            assert sessions.find(tx, GROUP).space_id is None


def test_the_home_is_open_to_its_owner_as_before(hold: Holdfast, api: httpx.Client) -> None:
    """With one person and no guests nothing changes."""
    for content in ("one", "two"):
        assert api.post("/api/log", json={"content": content}).json()["audience"] == "owner"
    assert len(api.get("/api/log").json()) == 2
