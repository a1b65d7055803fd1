"""Discord's REST API and gateway as far as a bot is driven in the tests, with the faults they have."""

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
from serving import wait_for

TOKEN = "a-token-of-the-bot"
BOT, ADA, BEN, GUILD, GROUP = "42", "7", "8", "9", "90"
DIRECT = {ADA: "17", BEN: "18"}
PEOPLE = {BOT: "kelp", ADA: "ada", BEN: "ben"}
FIRST_ID = 1_300_000_000_000_000_000


class DiscordServer(ServiceOnTrial):
    """A session's events are kept and sent again from where a resume says it was; who identifies anew is
    told nothing of before."""

    name = "discord"
    owner = ADA
    group = GROUP
    buttons = True
    most_chars = 2_000

    def __init__(self) -> None:
        self.url = ""
        self.lock = threading.RLock()
        self.loop = asyncio.new_event_loop()
        self.messages: dict[int, dict[str, Any]] = {}
        self.threads_of: dict[str, str] = {}
        self.faults: list[str] = []
        self.put: list[str] = []
        self.whispered: list[str] = []
        self.updates = self.typings = self.identified = self.resumed = self.beats = self.refused = 0
        self.token_is_good = True
        self.resumable = True
        self._events: list[dict[str, Any]] = []
        self._sockets: list[web.WebSocketResponse] = []
        self._files: dict[str, bytes] = {}
        self._ids = itertools.count(FIRST_ID, 1 << 22)

    def channel(self) -> dict[str, Any]:
        return {"options": {"botToken": TOKEN, "apiUrl": f"{self.url}/api/v10"}}

    def ready(self) -> None:
        wait_for(lambda: self.identified > 0)

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
        person = sender or ADA
        channel = (thread or GROUP) if group else DIRECT[person]
        said = self._message(channel, person, f"<@{BOT}> {text}" if mention else text)
        if mention:
            said["mentions"] = [_user(BOT)]
        if reply_to is not None:
            said["type"] = 19
            said["message_reference"] = {"channel_id": channel, "message_id": reply_to.partition(":")[2]}
        if file is not None:
            self._files[file[0]] = file[2]
            said["attachments"] = [self._attachment(*file)]
        self._tell("MESSAGE_CREATE", said)
        return f"{channel}:{said['id']}"

    def change(self, message_id: str, text: str) -> None:
        with self.lock:
            said = self.messages[int(message_id.partition(":")[2])]
            said.update(content=text, edited_timestamp="2026-11-01T00:00:00+00:00")
        self._tell("MESSAGE_UPDATE", said)

    def take_back(self, message_id: str) -> None:
        with self.lock:
            gone = self.messages.pop(int(message_id.partition(":")[2]))
        self._tell("MESSAGE_DELETE", {"id": gone["id"], **_place(gone)})

    def react(self, message_id: str, sign: str) -> None:
        said = self.messages[int(message_id.partition(":")[2])]
        emoji = {"id": None, "name": sign}
        event = {"user_id": ADA, "message_id": said["id"], "emoji": emoji, "type": 0, **_place(said)}
        self._tell("MESSAGE_REACTION_ADD", {**event, "burst": False})

    def shown(
        self, *, sender: str | None = None, group: bool = False, thread: str | None = None
    ) -> list[str]:
        channel = (thread or GROUP) if group else DIRECT[sender or ADA]
        with self.lock:
            ours = [one for one in self.messages.values() if one["author"]["id"] == BOT]
        there = [one for one in ours if one["channel_id"] == channel]
        return [
            one["content"] + "".join(f"<file {a['filename']}>" for a in one["attachments"]) for one in there
        ]

    def limit_next(self) -> None:
        self.faults.append("limit")

    def cut_next(self) -> None:
        self.faults.append("cut")

    def signs(self) -> list[str]:
        return self.put

    def typed(self) -> bool:
        return self.typings > 0

    def changes(self) -> int:
        return self.updates

    def last_id(self) -> str:
        newest = self._newest()
        return f"{newest['channel_id']}:{newest['id']}"

    def offered(self) -> list[str]:
        return [one["label"] for one in self._row()]

    def press(self, label: str, sender: str | None = None) -> None:
        asked = self._newest()
        button = next(one for one in self._row() if one["label"] == label)
        data = {"custom_id": button["custom_id"], "component_type": 2}
        self._tell(
            "INTERACTION_CREATE",
            {
                "id": str(next(self._ids)),
                "application_id": BOT,
                "type": 3,
                "token": "press",
                "version": 1,
                "data": data,
                "message": asked,
                "channel_id": asked["channel_id"],
                "channel": _direct(asked["channel_id"]),
                "user": _user(sender or ADA),
                "locale": "en-GB",
                "attachment_size_limit": 1,
                "authorizing_integration_owners": {},
                "entitlements": [],
            },
        )

    def notices(self) -> list[str]:
        return list(self.whispered)

    def drop_sockets(self, code: int = 4000) -> None:
        async def drop() -> None:
            for socket in list(self._sockets):
                await socket.close(code=code)

        asyncio.run_coroutine_threadsafe(drop(), self.loop).result(30)

    def repeat_last(self) -> None:
        """An event comes again, as if it were a new one."""
        last = self._events[-1]
        self._tell(last["t"], last["d"])

    def _newest(self) -> dict[str, Any]:
        with self.lock:
            return [one for one in self.messages.values() if one["author"]["id"] == BOT][-1]

    def _row(self) -> list[dict[str, Any]]:
        with self.lock:
            ours = [one for one in self.messages.values() if one["author"]["id"] == BOT]
        return [one for row in ours[-1]["components"] for one in row["components"]] if ours else []

    def _message(self, channel: str, author: str, text: str, id_: str | None = None) -> dict[str, Any]:
        made: dict[str, Any] = {
            "id": id_ or str(next(self._ids)),
            "channel_id": channel,
            "author": _user(author),
            "content": text,
            "timestamp": "2026-11-01T00:00:00+00:00",
            "edited_timestamp": None,
            "tts": False,
            "mention_everyone": False,
            "mentions": [],
            "mention_roles": [],
            "attachments": [],
            "embeds": [],
            "components": [],
            "pinned": False,
            "type": 0,
        }
        if channel not in DIRECT.values():
            made["guild_id"] = GUILD
        with self.lock:
            self.messages[int(made["id"])] = made
        return made

    def _attachment(self, name: str, mime: str, data: bytes) -> dict[str, Any]:
        where = f"{self.url}/files/{name}"
        told = {"id": str(next(self._ids)), "filename": name, "size": len(data), "content_type": mime}
        return {**told, "url": where, "proxy_url": where}

    def _tell(self, kind: str, body: dict[str, Any]) -> None:
        asyncio.run_coroutine_threadsafe(self._dispatched(kind, body), self.loop).result(30)

    async def _dispatched(self, kind: str, body: dict[str, Any]) -> None:
        event = {"op": 0, "t": kind, "s": len(self._events) + 1, "d": json.loads(json.dumps(body))}
        self._events.append(event)
        for socket in self._sockets:
            await socket.send_str(json.dumps(event))

    async def gateway(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str(json.dumps({"op": 10, "d": {"heartbeat_interval": 41_250}}))
        try:
            async for frame in socket:
                if frame.type is WSMsgType.TEXT:
                    await self._spoken(socket, json.loads(frame.data))
        finally:
            if socket in self._sockets:
                self._sockets.remove(socket)
        return socket

    async def _spoken(self, socket: web.WebSocketResponse, frame: dict[str, Any]) -> None:
        body = frame.get("d")
        match frame["op"]:
            case 1:
                self.beats += 1
                await socket.send_str(json.dumps({"op": 11}))
            case 2 | 6 if not self.token_is_good or body["token"] != TOKEN:
                self.refused += 1
                await socket.close(code=4004)
            case 2:
                self._sockets.append(socket)
                gateway = f"{self.url.replace('http', 'ws', 1)}/gateway"
                ready = {"v": 10, "user": _user(BOT), "session_id": "s1", "resume_gateway_url": gateway}
                application = {"id": BOT, "flags": 0}
                guilds = [{"id": GUILD, "unavailable": True}]
                await self._dispatched("READY", {**ready, "application": application, "guilds": guilds})
                await self._dispatched("GUILD_CREATE", _guild())
                self.identified += 1
            case 6 if not self.resumable:
                await socket.send_str(json.dumps({"op": 9, "d": False}))
            case 6:
                for event in self._events[int(body["seq"]) :]:
                    await socket.send_str(json.dumps(event))
                self._sockets.append(socket)
                await self._dispatched("RESUMED", {})
                self.resumed += 1

    async def call(self, request: web.Request) -> web.Response:
        given = await _given(request)
        if not self.token_is_good or request.headers.get("Authorization") not in (f"Bot {TOKEN}", None):
            self.refused += 1
            return _json({"message": "401: Unauthorized", "code": 0}, 401)
        sends = request.method == "POST" and request.path.endswith("/messages")
        fault = self.faults.pop(0) if self.faults and sends else None
        if fault == "limit":
            limited = {"message": "You are being rate limited.", "retry_after": 0.2, "global": False}
            return _json(limited, 429, {"Via": "1.1 here"})
        parts = tuple(request.path.removeprefix("/api/v10/").split("/"))
        status, body = await self._answer(request, parts, given)
        if fault == "cut":
            assert request.transport is not None
            request.transport.close()
        return _json(body, status)

    async def _answer(self, request: web.Request, parts: tuple[str, ...], given: dict[str, Any]) -> Any:
        match request.method, *parts:
            case "GET", "users", "@me":
                return 200, _user(BOT)
            case "GET", "oauth2", "applications", "@me":
                return 200, _application()
            case "POST", "users", "@me", "channels":
                return 200, self._channel(DIRECT[str(given["recipient_id"])])
            case "GET", "channels", channel:
                return 200, self._channel(channel)
            case "GET", "channels", channel, "messages":
                return 200, self._history(channel, request.query)
            case "POST", "channels", channel, "messages":
                return await self._posted(channel, given)
            case "PATCH", "channels", _, "messages", number:
                return self._edited(int(number), given)
            case "PUT", "channels", _, "messages", _, "reactions", sign, "@me":
                self.put.append(sign)
                return 204, None
            case "POST", "channels", _, "typing":
                self.typings += 1
                return 204, None
            case "POST", "channels", channel, "threads":
                made = str(next(self._ids))
                self.threads_of[made] = channel
                return 201, self._channel(made)
            case "POST", "interactions", *_:
                callback = {"id": "1", "type": 3, "response_message_ephemeral": True}
                return 200, {"interaction": callback}
            case "POST", "webhooks", *_:
                self.whispered.append(str(given["content"]))
                return 200, self._whispered(str(given["content"]))
        return 404, {"message": "404: Not Found", "code": 0}

    def _whispered(self, text: str) -> dict[str, Any]:
        made = self._message(DIRECT[ADA], BOT, text)
        with self.lock:
            return self.messages.pop(int(made["id"]))

    def _channel(self, channel: str) -> dict[str, Any]:
        with self.lock:
            said = [id_ for id_, one in self.messages.items() if one["channel_id"] == channel]
        last = str(max(said)) if said else None
        if channel in DIRECT.values():
            return {**_direct(channel), "last_message_id": last}
        if channel in self.threads_of:
            return _thread(channel, self.threads_of[channel])
        return {**_text_channel(), "guild_id": GUILD, "last_message_id": last}

    def _history(self, channel: str, asked: Any) -> list[dict[str, Any]]:
        with self.lock:
            said = sorted((id_, one) for id_, one in self.messages.items() if one["channel_id"] == channel)
        limit = int(asked.get("limit") or 50)
        if "after" in asked:
            return [one for id_, one in said if id_ > int(asked["after"])][:limit][::-1]
        before = int(asked.get("before") or 1 << 63)
        return [one for id_, one in said if id_ < before][-limit:][::-1]

    async def _posted(self, channel: str, given: dict[str, Any]) -> tuple[int, Any]:
        if len(given.get("content") or "") > self.most_chars:
            return 400, {"message": "Invalid Form Body", "code": 50035}
        with self.lock:
            for one in self.messages.values():
                if one.get("nonce") == given["nonce"]:
                    return 200, one
        made = self._message(channel, BOT, given.get("content") or "")
        made["nonce"] = given["nonce"]
        made["components"] = given.get("components") or []
        sent = [self._attachment(name, "text/plain", data) for name, data in given.get("files", ())]
        made["attachments"] = sent
        await self._dispatched("MESSAGE_CREATE", made)
        return 200, made

    def _edited(self, number: int, given: dict[str, Any]) -> tuple[int, Any]:
        if len(given["content"]) > self.most_chars:
            return 400, {"message": "Invalid Form Body", "code": 50035}
        self.updates += 1
        with self.lock:
            self.messages[number].update(given)
            return 200, self.messages[number]

    async def download(self, request: web.Request) -> web.Response:
        return web.Response(body=self._files[request.match_info["name"]])


async def _given(request: web.Request) -> dict[str, Any]:
    if request.content_type == "application/json":
        found: dict[str, Any] = await request.json()
        return found
    if not request.content_type.startswith("multipart/"):
        return {}
    form = await request.post()
    sent = [(f.filename, f.file.read()) for f in form.values() if isinstance(f, web.FileField)]
    return {**json.loads(str(form["payload_json"])), "files": sent}


def _json(body: Any, status: int, headers: dict[str, str] | None = None) -> web.Response:
    if status == 204:
        return web.Response(status=204)
    # The library takes what is not exactly this type for text.
    kind = {"Content-Type": "application/json", **(headers or {})}
    return web.Response(body=json.dumps(body).encode(), status=status, headers=kind)


def _user(id_: str) -> dict[str, Any]:
    named = {"username": PEOPLE.get(id_, "cy"), "discriminator": "0", "avatar": None, "global_name": None}
    return {"id": id_, "bot": id_ == BOT, **named}


def _application() -> dict[str, Any]:
    said = {"id": BOT, "name": "Kelp", "icon": None, "description": "", "flags": 0, "verify_key": "k"}
    return {**said, "bot_public": False, "bot_require_code_grant": False, "owner": _user(ADA), "team": None}


def _direct(channel: str) -> dict[str, Any]:
    person = next(who for who, where in DIRECT.items() if where == channel)
    return {"id": channel, "type": 1, "recipients": [_user(person)], "last_message_id": None}


def _text_channel() -> dict[str, Any]:
    told = {"id": GROUP, "type": 0, "name": "harbour", "position": 0, "permission_overwrites": []}
    return {**told, "parent_id": None, "nsfw": False, "topic": None}


def _thread(id_: str, parent: str) -> dict[str, Any]:
    kept = {"archived": False, "auto_archive_duration": 60, "locked": False}
    stamped = {**kept, "archive_timestamp": "2026-11-01T00:00:00+00:00"}
    told = {"id": id_, "guild_id": GUILD, "parent_id": parent, "type": 11, "name": "t", "owner_id": BOT}
    return {
        **told,
        "thread_metadata": stamped,
        "message_count": 0,
        "member_count": 1,
        "last_message_id": None,
    }


def _guild() -> dict[str, Any]:
    everyone = {"id": GUILD, "name": "@everyone", "permissions": "0", "position": 0, "color": 0}
    role = {**everyone, "hoist": False, "managed": False, "mentionable": False}
    lists: dict[str, list[Any]] = {
        name: [] for name in ("emojis", "features", "members", "threads", "voice_states", "stickers")
    }
    told = {"id": GUILD, "name": "Harbour", "owner_id": ADA, "unavailable": False, "member_count": 3}
    return {**told, **lists, "roles": [role], "channels": [_text_channel()]}


def _place(said: dict[str, Any]) -> dict[str, Any]:
    return {name: said[name] for name in ("channel_id", "guild_id") if name in said}


@contextmanager
def discord(folder: Path) -> Iterator[DiscordServer]:
    made = DiscordServer()
    app = web.Application(client_max_size=200 * 1024**2)
    app.router.add_route("*", "/api/v10/{rest:.*}", made.call)
    app.router.add_get("/gateway", made.gateway)
    app.router.add_get("/files/{name}", made.download)
    with served(app, made.loop) as url:
        made.url = url
        yield made
