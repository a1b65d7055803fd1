"""Matrix, on matrix-nio. A message has a transaction id made from its key, so that a server takes it once.

Rooms that are encrypted are left alone: what is said there cannot be read without keys of one's own.

What the content of a Matrix event says: its words, its thread, what it answers, whom it names. Pure.
"""

from __future__ import annotations

import hashlib
import io
import logging
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from holdfast.channels import (
    Abilities,
    Changed,
    ChannelContext,
    File,
    Inbound,
    Message,
    Said,
    SendFailed,
    Surface,
)
from holdfast.plugins import PluginApi
from holdfast.plugins_bundled.service import ServiceChannel, bad_token

if TYPE_CHECKING:
    import nio


def relation(content: Mapping[str, Any]) -> Mapping[str, Any]:
    found = content.get("m.relates_to")
    return found if isinstance(found, dict) else {}


def thread_of(content: Mapping[str, Any]) -> str | None:
    about = relation(content)
    return str(about["event_id"]) if about.get("rel_type") == "m.thread" and about.get("event_id") else None


def replied_to(content: Mapping[str, Any]) -> str | None:
    """The message that is answered; one that only stands in for old programs is none."""
    about = relation(content)
    answered = about.get("m.in_reply_to")
    if about.get("is_falling_back") or not isinstance(answered, dict):
        return None
    return str(answered.get("event_id") or "") or None


def words(content: Mapping[str, Any]) -> str:
    """The body, without the lines of the message before it that some programs quote at its beginning."""
    body = content.get("body")
    text = body if isinstance(body, str) else ""
    if replied_to(content) is not None and text.startswith("> "):
        lines = text.split("\n")
        while lines and lines[0].startswith(">"):
            lines.pop(0)
        text = "\n".join(lines).lstrip("\n")
    return text


def caption(content: Mapping[str, Any]) -> str:
    """What is said with a file: its body, where the file's name stands elsewhere."""
    name, body = content.get("filename"), content.get("body")
    return body if isinstance(body, str) and isinstance(name, str) and body != name else ""


def edited(content: Mapping[str, Any]) -> str:
    new = content.get("m.new_content")
    return words(new) if isinstance(new, dict) else ""


def mentions(content: Mapping[str, Any], user_id: str) -> bool:
    named = content.get("m.mentions")
    listed = named.get("user_ids") if isinstance(named, dict) else None
    body = str(content.get("body") or "")
    return (isinstance(listed, list) and user_id in listed) or user_id in body


log = logging.getLogger(__name__)

MOST_CHARS: Final = 15_000  # an event has 65,536 bytes, with all that is in it
MOST_FILE_BYTES: Final = 50 * 1024**2
MOST_MISSED: Final = 1_000
CALL_SECONDS: Final = 30
SYNC_MS: Final = 20_000
TYPING_MS: Final = 10_000
TEXT: Final = "m.room.message"
_FILES: Final = ("m.image", "m.file", "m.audio", "m.video")


class Matrix(ServiceChannel):
    """One account on one homeserver."""

    extra = "matrix"
    libraries = ("nio",)
    needs = ("homeserver", "userId", "accessToken")

    abilities = Abilities(
        most_chars=MOST_CHARS,
        edits=True,
        reacts=True,
        threads=True,
        most_file_bytes=MOST_FILE_BYTES,
        reads=True,
        types=True,
    )

    def __init__(self, context: ChannelContext) -> None:
        super().__init__(context)
        import nio

        self._nio = nio
        self._me = self.needed("userId")
        self._client: nio.AsyncClient | None = None
        self._direct: dict[str, bool] = {}
        self._rooms: dict[str, str] = self.read_state("rooms.json") or {}

    def _connected(self) -> nio.AsyncClient:
        """The client, made on the loop that it is used on. Trying again is left to the outbox."""
        if self._client is None:
            config = self._nio.AsyncClientConfig(
                max_limit_exceeded=0, max_timeouts=0, request_timeout=CALL_SECONDS, encryption_enabled=False
            )
            made = self._nio.AsyncClient(self.needed("homeserver"), self._me, config=config)
            made.access_token, made.user_id = self.needed("accessToken"), self._me
            self._client = made
        return self._client

    async def check(self) -> str:
        told = await self._called(self._connected().whoami())
        if told.user_id != self._me:
            raise SendFailed(f"the token is {told.user_id}'s, not {self._me}'s", final=True)
        return self._me

    async def run(self) -> None:
        """Follow the rooms from where we were; how far that is is kept once all of it is taken in."""
        client = self._connected()
        try:
            since = self._came_to()
            while True:
                timeout = SYNC_MS if since else 0
                told = await client.sync(timeout=timeout, since=since, full_state=not since)
                if isinstance(told, self._nio.SyncError):
                    raise self._failure(told)
                await self._take(told, since)
                since = told.next_batch
                self._keep(since)
        finally:
            self._client = None
            await client.close()

    async def send(self, message: Message) -> str | None:
        sent: str | None = None
        if message.text.strip():
            sent = await self._put(message, self._content(message), message.key)
        for number, file in enumerate(message.files):
            content = await self._uploaded(file) | self._relates(message)
            sent = await self._put(message, content, f"{message.key}/{number}")
        return sent

    async def edit(self, message_id: str, message: Message) -> None:
        new = {"msgtype": "m.text", "body": message.text}
        content = {
            **new,
            "body": f"* {message.text}",
            "m.new_content": new,
            "m.relates_to": {"rel_type": "m.replace", "event_id": message_id},
        }
        await self._put(message, content, f"{message.key}/edit/{message_id}")

    async def react(self, message_id: str, message: Message) -> None:
        about = {"rel_type": "m.annotation", "event_id": message_id, "key": message.text.strip()}
        await self._put(message, {"m.relates_to": about}, message.key, kind="m.reaction")

    async def open_thread(self, surface: Surface, name: str, key: str, about: str | None = None) -> str:
        """A thread hangs on a message: on the one that is named, else on one with the thread's name."""
        if about is not None:
            return about
        message = Message(key=key, surface=surface, text=name)
        return await self._put(message, {"msgtype": "m.text", "body": name}, key)

    async def typing(self, surface: Surface) -> None:
        room = await self._room(surface)
        await self._called(self._connected().room_typing(room, True, timeout=TYPING_MS))

    async def history(self, surface: Surface, limit: int) -> Sequence[Said]:
        client = self._connected()
        room = await self._room(surface)
        found = await self._called(
            client.room_messages(room, start="", direction=self._nio.MessageDirection.back, limit=100)
        )
        said = [self._said(event) for event in reversed(found.chunk) if self._is_in(event, surface)]
        return [one for one in said if one.text][:-1][-limit:]

    def _is_in(self, event: Any, surface: Surface) -> bool:
        content = event.source.get("content", {})
        within = thread_of(content) == surface.thread or event.event_id == surface.thread
        return event.source.get("type") == TEXT and within

    def _said(self, event: Any) -> Said:
        text = words(event.source.get("content", {}))
        return Said(event.sender, text, event.server_timestamp, event.sender == self._me)

    def _content(self, message: Message) -> dict[str, Any]:
        return {"msgtype": "m.text", "body": message.text, **self._relates(message)}

    def _relates(self, message: Message) -> dict[str, Any]:
        thread, quoted = message.surface.thread, message.reply_to
        about: dict[str, Any] = {}
        if thread is not None:
            about = {"rel_type": "m.thread", "event_id": thread, "is_falling_back": quoted is None}
        if quoted is not None or thread is not None:
            about["m.in_reply_to"] = {"event_id": quoted or thread}
        return {"m.relates_to": about} if about else {}

    async def _put(self, message: Message, content: dict[str, Any], key: str, kind: str = TEXT) -> str:
        """The same transaction id again is the same event, for the server too."""
        mark = hashlib.sha256(key.encode()).hexdigest()[:40]
        room = await self._room(message.surface)
        told = await self._called(self._connected().room_send(room, kind, content, tx_id=mark))
        return str(told.event_id)

    async def _uploaded(self, file: File) -> dict[str, Any]:
        client = self._connected()
        upload, _ = await self._called(
            client.upload(
                io.BytesIO(file.data), content_type=file.mime, filename=file.name, filesize=len(file.data)
            )
        )
        if isinstance(upload, self._nio.UploadError):
            raise self._failure(upload)
        kind = "m.image" if file.mime.startswith("image/") else "m.file"
        info = {"mimetype": file.mime, "size": len(file.data)}
        return {
            "msgtype": kind,
            "body": file.name,
            "filename": file.name,
            "url": upload.content_uri,
            "info": info,
        }

    async def _take(self, told: nio.SyncResponse, since: str | None) -> None:
        for room_id, invited in told.rooms.invite.items():
            await self._join(room_id, invited)
        for room_id, joined in told.rooms.join.items():
            if since is None:  # what was said before we ever were here is not for us to answer
                continue
            await self._learn(room_id)
            for event in (*await self._between(room_id, joined.timeline, since), *joined.timeline.events):
                await self._heard(room_id, event)

    async def _between(self, room_id: str, timeline: Any, since: str) -> list[Any]:
        """What was said while we were away beyond the few events that a sync tells; oldest first."""
        found: list[Any] = []
        start = timeline.prev_batch if timeline.limited else None
        while start and len(found) < MOST_MISSED:
            page = await self._called(
                self._connected().room_messages(
                    room_id, start, since, direction=self._nio.MessageDirection.back, limit=100
                )
            )
            found += takewhile(lambda event: not self._is_our_arrival(event), page.chunk)
            arrived = any(map(self._is_our_arrival, page.chunk))
            start = page.end if page.chunk and page.end != start and not arrived else None
        if start:
            log.warning("channel %s: more was said in %s while away than is read", self.name, room_id)
        return found[::-1]

    def _is_our_arrival(self, event: Any) -> bool:
        """What was said before it is not for us to answer."""
        return event.source.get("state_key") == self._me and getattr(event, "membership", "") == "join"

    async def _join(self, room_id: str, invited: Any) -> None:
        """Whoever may write directly, or might be let in, may invite us."""
        rules = self._context.settings
        by = next(
            (one.sender for one in invited.invite_state if getattr(one, "membership", "") == "invite"), ""
        )
        listed = by in (*rules.allow_from, *rules.owners)
        if listed or rules.dm_policy in ("open", "pairing"):
            await self._called(self._connected().join(room_id))
        else:
            log.info("channel %s: the invitation of %s is left alone", self.name, by)

    async def _learn(self, room_id: str) -> None:
        """A room of two is a direct chat."""
        told = await self._called(self._connected().joined_members(room_id))
        self._direct[room_id] = len(told.members) <= 2

    async def _heard(self, room_id: str, event: Any) -> None:
        source = event.source
        content = source.get("content") or {}
        if event.sender == self._me or not isinstance(content, dict):
            return
        kind = source.get("type")
        if kind == "m.room.redaction":
            gone = str(source.get("redacts") or content.get("redacts") or "")
            await self._changed(room_id, event, gone)
        elif kind == "m.reaction":
            about = relation(content)
            await self._changed(room_id, event, str(about.get("event_id")), sign=str(about.get("key") or ""))
        elif kind == TEXT and relation(content).get("rel_type") == "m.replace":
            text = edited(content)
            if text:
                await self._changed(room_id, event, str(relation(content).get("event_id")), text=text)
        elif kind == TEXT:
            await self._context.take(await self._inbound(room_id, event, content))

    async def _changed(
        self, room_id: str, event: Any, about: str, text: str | None = None, sign: str | None = None
    ) -> None:
        """A change does not say in which thread its message stands: the message itself does."""
        thread = await self._thread_of(room_id, about)
        change = Changed(
            surface=self._surface(room_id, event.sender, thread),
            message_id=about,
            sender=event.sender,
            text=text,
            sign=sign,
        )
        await self._context.changed(change)

    async def _thread_of(self, room_id: str, event_id: str) -> str | None:
        found = await self._connected().room_get_event(room_id, event_id)
        event = getattr(found, "event", None)
        return None if event is None else thread_of(event.source.get("content") or {})

    def _surface(self, room_id: str, sender: str, thread: str | None) -> Surface:
        """A direct chat is the person's, whichever room it is in; they are answered where they last wrote."""
        if not self._direct.get(room_id):
            return self._context.surface("group", room_id, thread)
        if self._rooms.get(sender) != room_id:
            self._rooms[sender] = room_id
            self.write_state("rooms.json", self._rooms)
        return self._context.surface("dm", sender, thread)

    async def _room(self, surface: Surface) -> str:
        """The room of a surface; somebody who has none with us yet is invited to one."""
        if not surface.direct:
            return surface.peer
        if surface.peer not in self._rooms:
            made = await self._called(
                self._connected().room_create(is_direct=True, invite=[surface.peer], preset=self._private())
            )
            self._rooms[surface.peer] = made.room_id
            self.write_state("rooms.json", self._rooms)
        return self._rooms[surface.peer]

    def _private(self) -> Any:
        return self._nio.RoomPreset.trusted_private_chat

    async def _inbound(self, room_id: str, event: Any, content: dict[str, Any]) -> Inbound:
        files, left_out = await self._files(content)
        return Inbound(
            surface=self._surface(room_id, event.sender, thread_of(content)),
            message_id=event.event_id,
            sender=event.sender,
            sender_name=event.sender,
            text=caption(content) if files or left_out else words(content),
            mentioned=bool(self._direct.get(room_id)) or mentions(content, self._me),
            reply_to=replied_to(content),
            bot=content.get("msgtype") == "m.notice",
            files=files,
            left_out=left_out,
        )

    async def _files(self, content: dict[str, Any]) -> tuple[tuple[File, ...], tuple[str, ...]]:
        if content.get("msgtype") not in _FILES or not content.get("url"):
            return (), ()
        info = content.get("info") or {}
        name = str(content.get("filename") or content.get("body") or "file")
        most = self._context.most_file_bytes
        if int(info.get("size") or 0) > most:
            return (), (f"{name}: it has more than {most:,} bytes",)
        told = await self._connected().download(str(content["url"]))
        data = getattr(told, "body", None)
        if not isinstance(data, bytes) or len(data) > most:
            return (), (f"{name}: it could not be fetched",)
        return (File(name, str(info.get("mimetype") or "application/octet-stream"), data),), ()

    async def _called(self, work: Any) -> Any:
        try:
            told = await work
        except (TimeoutError, OSError) as error:
            raise SendFailed(f"the homeserver cannot be reached: {error or type(error).__name__}") from error
        except Exception as error:
            raise SendFailed(f"Matrix: {type(error).__name__}: {error}"[:300]) from error
        if isinstance(told, self._nio.ErrorResponse):
            raise self._failure(told)
        return told

    def _failure(self, told: nio.ErrorResponse) -> SendFailed:
        code = told.status_code or ""
        said = f"Matrix: {code} {told.message}"[:300]
        if code == "M_LIMIT_EXCEEDED":
            return SendFailed(said, wait_ms=int(told.retry_after_ms or 1_000) + 50)
        if code in ("M_UNKNOWN_TOKEN", "M_MISSING_TOKEN"):
            return bad_token(said)
        final = code in ("M_FORBIDDEN", "M_TOO_LARGE", "M_NOT_FOUND", "M_BAD_JSON", "M_INVALID_PARAM")
        return SendFailed(said, final=final)

    def _came_to(self) -> str | None:
        found = self.read_state("since.json")
        return None if found is None else found.get("since")

    def _keep(self, since: str) -> None:
        self.write_state("since.json", {"since": since})


def register(api: PluginApi) -> None:
    api.register_channel("matrix", Matrix)
