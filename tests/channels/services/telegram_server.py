"""Telegram's Bot API as far as a bot is driven in the tests, on this machine, with the faults it has."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from service_stage import ServiceOnTrial

TOKEN = "42:a-token-of-the-bot"
BOT = {"id": 42, "is_bot": True, "first_name": "Kelp", "username": "kelp_bot"}
ADA, BEN, GROUP = 7, 8, -100200
NAMES = {ADA: "Ada", BEN: "Ben"}


class TelegramServer(ServiceOnTrial):
    """What happened, and what goes wrong next. `faults` are answers to the next calls that send or change
    something: a status with a body, or `drop` (taken, and the connection is cut) or `cut` (not taken)."""

    name = "telegram"
    owner = str(ADA)
    group = str(GROUP)
    deletes = False
    buttons = True

    def __init__(self) -> None:
        self.url = ""
        self.lock = threading.Condition()
        self.updates: list[dict[str, Any]] = []
        self.messages: dict[tuple[int, int], dict[str, Any]] = {}
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.faults: list[Any] = []
        self.poll_faults: list[Any] = []
        self.token_is_good = True
        self.refused = 0
        self.repeat_updates = 0
        self._ids = 0
        self._update_ids = 0
        self._files: dict[str, bytes] = {}

    def channel(self) -> dict[str, Any]:
        return {"options": {"botToken": TOKEN, "apiUrl": self.url}}

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
        person = int(sender or self.owner)
        text = f"@kelp_bot {text}" if mention else text
        with self.lock:
            said = self._message(person, text, group, thread)
            if mention:
                said["entities"] = [{"type": "mention", "offset": 0, "length": 9}]
            if reply_to is not None:
                said["reply_to_message"] = self.messages[_pair(reply_to)]
            if file is not None:
                name, mime, data = file
                self._files[name] = data
                said |= {"caption": text, "document": _document(name, mime, len(data))}
                del said["text"]
            self._update("message", said)
            return f"{said['chat']['id']}:{said['message_id']}"

    def change(self, message_id: str, text: str) -> None:
        with self.lock:
            said = self.messages[_pair(message_id)]
            said.update(text=text, edit_date=1)
            self._update("edited_message", said)

    def react(self, message_id: str, sign: str) -> None:
        chat, number = _pair(message_id)
        with self.lock:
            self._update(
                "message_reaction",
                {
                    "chat": _chat(chat),
                    "message_id": number,
                    "date": 1,
                    "user": _person(ADA),
                    "old_reaction": [],
                    "new_reaction": [{"type": "emoji", "emoji": sign}],
                },
            )

    def shown(
        self, *, sender: str | None = None, group: bool = False, thread: str | None = None
    ) -> list[str]:
        chat = GROUP if group else int(sender or self.owner)
        with self.lock:
            ours = [m for m in self.messages.values() if m["chat"]["id"] == chat and m["from"]["id"] == 42]
        topic = None if thread is None else int(thread)
        return [_plain(m) for m in ours if m.get("message_thread_id") == topic]

    def ids(self) -> list[str]:
        with self.lock:
            return [f"{c}:{n}" for (c, n), m in self.messages.items() if m["from"]["id"] == 42]

    def limit_next(self) -> None:
        self.faults.append((429, 1))

    def cut_next(self) -> None:
        self.faults.append("drop")

    def signs(self) -> list[str]:
        return [json.loads(given["reaction"])[0]["emoji"] for given in self.did("setMessageReaction")]

    def typed(self) -> bool:
        return bool(self.did("sendChatAction"))

    def changes(self) -> int:
        return len(self.did("editMessageText"))

    def last_id(self) -> str:
        return self.ids()[-1]

    def offered(self) -> list[str]:
        return [button["text"] for button in self._row()]

    def press(self, label: str, sender: str | None = None) -> None:
        asked = self.messages[_pair(self.last_id())]
        data = next(one["callback_data"] for one in self._row() if one["text"] == label)
        person = int(sender or self.owner)
        body = {"id": "1", "from": _person(person), "message": asked, "chat_instance": "1", "data": data}
        with self.lock:
            self._update("callback_query", body)

    def notices(self) -> list[str]:
        return [given["text"] for given in self.did("answerCallbackQuery")]

    def _row(self) -> list[dict[str, Any]]:
        with self.lock:
            ids = [pair for pair, m in self.messages.items() if m["from"]["id"] == 42]
            markup = self.messages[ids[-1]].get("reply_markup") if ids else None
        return [] if markup is None else list(markup["inline_keyboard"][0])

    def did(self, method: str) -> list[dict[str, Any]]:
        with self.lock:
            return [given for name, given in self.calls if name == method]

    def _message(self, person: int, text: str, group: bool, thread: str | None) -> dict[str, Any]:
        chat = GROUP if group else (person if person != 42 else int(self.owner))
        self._ids += 1
        made: dict[str, Any] = {
            "message_id": self._ids,
            "date": 1_790_000_000 + self._ids,
            "chat": _chat(chat),
            "from": BOT if person == 42 else _person(person),
            "text": text,
        }
        if thread is not None:
            made |= {"message_thread_id": int(thread), "is_topic_message": True}
        self.messages[chat, self._ids] = made
        return made

    def _update(self, kind: str, body: dict[str, Any]) -> None:
        self._update_ids += 1
        self.updates.append({"update_id": self._update_ids, kind: dict(body)})
        self.lock.notify_all()

    def answer(self, method: str, given: dict[str, Any]) -> tuple[int, Any]:
        """The status and the result, or a description of what is wrong."""
        with self.lock:
            if not self.token_is_good:
                self.refused += 1
                return 401, "Unauthorized"
            if method == "getMe":
                return 200, BOT
            if method == "getUpdates":
                return self._polled(given)
            sends = method.startswith("send") and method != "sendChatAction"
            fault = self.faults.pop(0) if self.faults and sends else None
            if isinstance(fault, tuple):
                return fault
            if fault == "cut":
                return 0, None
            self.calls.append((method, given))
            done = self._carried_out(method, given)
            return (0, None) if fault == "drop" else done

    def _polled(self, given: dict[str, Any]) -> tuple[int, Any]:
        if self.poll_faults:
            fault = self.poll_faults.pop(0)
            return fault if isinstance(fault, tuple) else (0, None)
        offset = int(given.get("offset") or 0)
        if self.repeat_updates:
            self.repeat_updates -= 1
            offset = max(0, offset - 2)
        else:
            self.updates = [one for one in self.updates if one["update_id"] >= offset]
        if not self.updates:
            self.lock.wait(0.2)
            if not self.token_is_good:
                self.refused += 1
                return 401, "Unauthorized"
        found = [one for one in self.updates if one["update_id"] >= offset]
        return 200, list(reversed(found))

    def _carried_out(self, method: str, given: dict[str, Any]) -> tuple[int, Any]:
        chat = int(given.get("chat_id") or 0)
        match method:
            case "sendMessage" | "sendDocument" | "sendPhoto":
                text = given.get("text") or f"<file {given['document' if 'document' in given else 'photo']}>"
                if len(_bare(text)) > 4096:
                    return 400, "Bad Request: message is too long"
                thread = given.get("message_thread_id")
                made = self._message(42, text, chat == GROUP, thread)
                if given.get("reply_markup"):
                    made["reply_markup"] = json.loads(given["reply_markup"])
                del self.messages[made["chat"]["id"], made["message_id"]]
                made["chat"] = _chat(chat)
                self.messages[chat, made["message_id"]] = made
                return 200, made
            case "editMessageText":
                said = self.messages.get((chat, int(given["message_id"])))
                if said is None or said["from"]["id"] != 42:
                    return 400, "Bad Request: message to edit not found"
                if said["text"] == given["text"]:
                    return 400, "Bad Request: message is not modified: specified new message content"
                said["text"] = given["text"]
                said.pop("reply_markup", None)
                return 200, said
            case "createForumTopic":
                self._ids += 1
                return 200, {"message_thread_id": self._ids, "name": given["name"], "icon_color": 1}
            case "getFile":
                id_ = given["file_id"]
                return 200, {"file_id": id_, "file_unique_id": id_, "file_path": f"documents/{id_}"}
        return 200, True

    def file(self, name: str) -> bytes:
        return self._files[name]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """A gateway that is killed leaves its calls unread."""


@contextmanager
def telegram(folder: Path) -> Iterator[TelegramServer]:
    api = TelegramServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length") or 0))
            path = re.fullmatch(rf"/bot{re.escape(TOKEN)}/(\w+)", self.path)
            given = _form(self.headers.get("content-type") or "", raw)
            status, result = (404, "Not Found") if path is None else api.answer(path[1], given)
            if status == 0:
                self.close_connection = True
                self.connection.close()
                return
            body: dict[str, Any] = {"ok": status == 200}
            if status == 200:
                body["result"] = result
            elif isinstance(result, int):
                body |= {"error_code": 429, "description": "Too Many Requests"}
                body["parameters"] = {"retry_after": result}
            else:
                body |= {"error_code": status, "description": result}
            self._send(status, json.dumps(body).encode())

        def do_GET(self) -> None:
            self._send(200, api.file(self.path.rpartition("/")[2]))

        def _send(self, status: int, data: bytes) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            """Tests look at what was called."""

    server = _Server(("127.0.0.1", 0), Handler)
    api.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _form(kind: str, raw: bytes) -> dict[str, Any]:
    if kind.startswith("multipart/"):
        parsed = BytesParser(policy=HTTP).parsebytes(f"Content-Type: {kind}\r\n\r\n".encode() + raw)
        return {
            str(part.get_param("name", header="content-disposition")): (
                part.get_filename() or part.get_payload(decode=True).decode().strip()  # type: ignore[union-attr]
            )
            for part in parsed.iter_parts()  # type: ignore[attr-defined]
        }
    return {name: values[0] for name, values in parse_qs(raw.decode()).items()}


def _pair(message_id: str) -> tuple[int, int]:
    chat, _, number = message_id.rpartition(":")
    return int(chat), int(number)


def _chat(chat: int) -> dict[str, Any]:
    if chat > 0:
        return {"id": chat, "type": "private", "first_name": NAMES.get(chat, "Cy")}
    return {"id": chat, "type": "supergroup", "title": "Harbour", "is_forum": True}


def _person(person: int) -> dict[str, Any]:
    return {"id": person, "is_bot": False, "first_name": NAMES.get(person, "Cy")}


def _document(name: str, mime: str, size: int) -> dict[str, Any]:
    return {"file_id": name, "file_unique_id": name, "file_name": name, "mime_type": mime, "file_size": size}


_PRE = re.compile(r'<pre><code(?: class="language-(\w+)")?>(.*?)</code></pre>', re.DOTALL)


def _bare(text: str) -> str:
    return re.sub(r"<[^>]+>", "", text)


def _plain(message: dict[str, Any]) -> str:
    text = str(message["text"])
    text = _PRE.sub(r"```\1\n\2\n```", text)
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
