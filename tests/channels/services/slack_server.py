"""Slack's Web API and socket mode as far as an app is driven in the tests, with the faults they have."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, web
from service_stage import ServiceOnTrial, served

BOT, ADA, BEN, GROUP = "UBOT", "UADA", "UBEN", "CHARBOUR"
DIRECT = {ADA: "DADA", BEN: "DBEN"}


class SlackServer(ServiceOnTrial):
    """Events wait until they are acknowledged; a new connection is sent again what was not."""

    name = "slack"
    owner = ADA
    other = BEN
    group = GROUP
    types = False
    buttons = True
    most_chars = 3_900

    def __init__(self) -> None:
        self.url = ""
        self.lock = threading.RLock()
        self.loop = asyncio.new_event_loop()
        self.messages: dict[str, dict[str, Any]] = {}
        self.faults: list[str] = []
        self.put: list[str] = []
        self.whispered: list[str] = []
        self.updates = 0
        self.connections = 0
        self.token_is_good = True
        self._waiting: dict[str, dict[str, Any]] = {}
        self._files: dict[str, bytes] = {}
        self._uploads: dict[str, str] = {}
        self._sockets: list[web.WebSocketResponse] = []
        self._count = itertools.count(1)

    def channel(self) -> dict[str, Any]:
        return {"options": {"botToken": "xoxb-1", "appToken": "xapp-1", "apiUrl": f"{self.url}/api/"}}

    def say(
        self,
        text: str,
        *,
        sender: str | None = None,
        group: bool = False,
        thread: str | None = None,
        mention: bool = False,
        file: tuple[str, str, bytes] | None = None,
        reply_to: str | None = None,
    ) -> str:
        person = BEN if sender == "8" else (sender or ADA)
        channel = GROUP if group else DIRECT[person]
        said: dict[str, Any] = {
            "type": "message",
            "channel": channel,
            "channel_type": "channel" if group else "im",
            "user": person,
            "text": f"<@{BOT}> {text}" if mention or reply_to else text,
            "ts": self._ts(),
        }
        if thread is not None:
            said["thread_ts"] = thread
        if file is not None:
            name, mime, data = file
            self._files[name] = data
            where = f"{self.url}/files/{name}"
            said["subtype"] = "file_share"
            said["files"] = [
                {"name": name, "mimetype": mime, "size": len(data), "url_private_download": where}
            ]
        with self.lock:
            self.messages[f"{channel}:{said['ts']}"] = said
        self._tell(said)
        return f"{channel}:{said['ts']}"

    def change(self, message_id: str, text: str) -> None:
        before = self.messages[message_id]
        after = {**before, "text": text}
        self.messages[message_id] = after
        self._tell(
            {
                "type": "message",
                "subtype": "message_changed",
                "channel": before["channel"],
                "channel_type": before["channel_type"],
                "message": after,
                "previous_message": before,
            }
        )

    def take_back(self, message_id: str) -> None:
        gone = self.messages.pop(message_id)
        self._tell(
            {
                "type": "message",
                "subtype": "message_deleted",
                "channel": gone["channel"],
                "channel_type": gone["channel_type"],
                "deleted_ts": gone["ts"],
                "previous_message": gone,
            }
        )

    def react(self, message_id: str, sign: str) -> None:
        channel, _, ts = message_id.partition(":")
        item = {"type": "message", "channel": channel, "ts": ts}
        names = {"🎉": "tada"}
        self._tell({"type": "reaction_added", "user": ADA, "reaction": names[sign], "item": item})

    def shown(
        self, *, sender: str | None = None, group: bool = False, thread: str | None = None
    ) -> list[str]:
        person = BEN if sender == "8" else (sender or ADA)
        channel = GROUP if group else DIRECT[person]
        with self.lock:
            ours = [m for m in self.messages.values() if (m["channel"], m["user"]) == (channel, BOT)]
        texts = [m["text"] for m in ours if m.get("thread_ts") == thread]
        return [text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") for text in texts]

    def limit_next(self) -> None:
        self.faults.append("limit")

    def cut_next(self) -> None:
        self.faults.append("cut")

    def signs(self) -> list[str]:
        return [{"thumbsup": "👍"}.get(name, name) for name in self.put]

    def changes(self) -> int:
        return self.updates

    def last_id(self) -> str:
        with self.lock:
            return [id_ for id_, m in self.messages.items() if m["user"] == BOT][-1]

    def offered(self) -> list[str]:
        return [button["text"]["text"] for button in self._row()]

    def press(self, label: str, sender: str | None = None) -> None:
        person = BEN if sender == "8" else (sender or ADA)
        button = next(one for one in self._row() if one["text"]["text"] == label)
        payload = {
            "type": "block_actions",
            "user": {"id": person},
            "channel": {"id": DIRECT[ADA]},
            "actions": [{"action_id": button["action_id"], "value": button["value"]}],
        }
        self._hand("interactive", payload)

    def notices(self) -> list[str]:
        return list(self.whispered)

    def _row(self) -> list[dict[str, Any]]:
        with self.lock:
            ours = [m for m in self.messages.values() if m["user"] == BOT]
            blocks = ours[-1].get("blocks") if ours else None
        made = json.loads(blocks) if isinstance(blocks, str) else blocks or []
        return [one for block in made if block["type"] == "actions" for one in block["elements"]]

    def drop_sockets(self) -> None:
        """The connection ends, as Slack's do now and then."""

        async def drop() -> None:
            for socket in self._sockets:
                await socket.close()

        asyncio.run_coroutine_threadsafe(drop(), self.loop).result(30)

    def repeat_last(self) -> None:
        """An event that was acknowledged comes again."""
        asyncio.run_coroutine_threadsafe(self._send(self._last), self.loop).result(30)

    def _ts(self) -> str:
        return f"{1_790_000_000 + next(self._count)}.000100"

    def _tell(self, event: dict[str, Any]) -> None:
        number = next(self._count)
        payload = {"type": "event_callback", "team_id": "T1", "event_id": f"Ev{number}", "event": event}
        self._hand("events_api", payload)

    def _hand(self, kind: str, payload: dict[str, Any]) -> None:
        envelope = {"envelope_id": f"e{next(self._count)}", "type": kind, "payload": payload}
        self._last = envelope
        self._waiting[str(envelope["envelope_id"])] = envelope
        asyncio.run_coroutine_threadsafe(self._send(envelope), self.loop).result(30)

    async def _send(self, envelope: dict[str, Any]) -> None:
        for socket in self._sockets[-1:]:
            await socket.send_str(json.dumps(envelope))

    async def socket(self, request: web.Request) -> web.WebSocketResponse:
        made = web.WebSocketResponse()
        await made.prepare(request)
        self.connections += 1
        await made.send_str(json.dumps({"type": "hello", "num_connections": 1}))
        self._sockets.append(made)
        for envelope in list(self._waiting.values()):
            await made.send_str(json.dumps(envelope))
        try:
            async for message in made:
                if message.type is WSMsgType.TEXT and message.data.startswith("{"):
                    self._waiting.pop(json.loads(message.data).get("envelope_id", ""), None)
        finally:
            self._sockets.remove(made)
        return made

    async def call(self, request: web.Request) -> web.Response:
        method = request.match_info["method"]
        given = await _given(request)
        if not self.token_is_good:
            return web.json_response({"ok": False, "error": "token_revoked"})
        fault = self.faults.pop(0) if self.faults and method == "chat.postMessage" else None
        if fault == "limit":
            body = {"ok": False, "error": "ratelimited"}
            return web.json_response(body, status=429, headers={"Retry-After": "1"})
        with self.lock:
            told = self._answer(method, given)
        if fault == "cut":
            assert request.transport is not None
            request.transport.close()
        return web.json_response(told)

    def _answer(self, method: str, given: dict[str, Any]) -> dict[str, Any]:
        match method:
            case "auth.test":
                return {"ok": True, "user_id": BOT, "user": "kelp", "team": "Harbour", "team_id": "T1"}
            case "apps.connections.open":
                return {"ok": True, "url": f"{self.url.replace('http', 'ws', 1)}/socket"}
            case "conversations.open":
                return {"ok": True, "channel": {"id": DIRECT[str(given["users"])]}}
            case "chat.postMessage":
                return self._posted(given)
            case "chat.update":
                self.updates += 1
                changed = {"text": given["text"], "blocks": given.get("blocks")}
                self.messages[f"{given['channel']}:{given['ts']}"].update(changed)
                return {"ok": True, "channel": given["channel"], "ts": given["ts"]}
            case "chat.postEphemeral":
                self.whispered.append(str(given["text"]))
                return {"ok": True}
            case "reactions.add":
                self.put.append(str(given["name"]))
                return {"ok": True}
            case "conversations.history" | "conversations.replies":
                thread = given.get("ts")
                found = [m for m in self.messages.values() if m["channel"] == given["channel"]]
                within = [m for m in found if thread is None or thread in (m.get("thread_ts"), m["ts"])]
                return {"ok": True, "messages": within[::-1][: int(given["limit"])]}
            case "files.getUploadURLExternal":
                self._uploads["F1"] = str(given["filename"])
                return {"ok": True, "upload_url": f"{self.url}/upload/F1", "file_id": "F1"}
            case "files.completeUploadExternal":
                self._posted({"channel": given["channel_id"], "text": f"<file {self._uploads['F1']}>"})
                return {"ok": True, "files": [{"id": "F1"}]}
        return {"ok": False, "error": "unknown_method"}

    def _posted(self, given: dict[str, Any]) -> dict[str, Any]:
        if len(str(given["text"])) > 40_000:
            return {"ok": False, "error": "msg_too_long"}
        made = {"type": "message", "user": BOT, "bot_id": "B1", "ts": self._ts(), **given}
        if isinstance(made.get("metadata"), str):
            made["metadata"] = json.loads(made["metadata"])
        if made.get("thread_ts") is None:
            made.pop("thread_ts", None)
        self.messages[f"{made['channel']}:{made['ts']}"] = made
        return {"ok": True, "channel": made["channel"], "ts": made["ts"], "message": made}

    async def upload(self, request: web.Request) -> web.Response:
        await request.read()
        return web.Response(text="OK")

    async def download(self, request: web.Request) -> web.Response:
        return web.Response(body=self._files[request.match_info["name"]])


async def _given(request: web.Request) -> dict[str, Any]:
    if request.content_type == "application/json":
        found: dict[str, Any] = await request.json()
        return found
    return {**request.query, **dict(await request.post())}


@contextmanager
def slack(folder: Path) -> Iterator[SlackServer]:
    made = SlackServer()
    app = web.Application(client_max_size=200 * 1024**2)
    app.router.add_route("*", "/api/{method}", made.call)
    app.router.add_get("/socket", made.socket)
    app.router.add_post("/upload/{id}", made.upload)
    app.router.add_get("/files/{name}", made.download)
    with served(app, made.loop) as url:
        made.url = url
        yield made
