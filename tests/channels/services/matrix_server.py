"""A real Synapse on this machine, with people on it. It is looked for in HOLDFAST_SYNAPSE, the folder of a
virtual environment that has matrix-synapse."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from service_stage import ServiceOnTrial

PYTHON = Path(os.environ.get("HOLDFAST_SYNAPSE", "/opt/holdfast-synapse")) / "bin" / "python"
SECRET = "a-shared-secret"
MORE = """
listeners:
  - port: {port}
    type: http
    bind_addresses: ["127.0.0.1"]
    resources: [{{names: [client, media], compress: false}}]
database: {{name: sqlite3, args: {{database: "{folder}/synapse.db"}}}}
registration_shared_secret: "{secret}"
trusted_key_servers: []
suppress_key_server_warning: true
rc_message: {{per_second: 10000, burst_count: 10000}}
rc_joins: {{local: {{per_second: 1000, burst_count: 1000}}}}
rc_invites: {{per_room: {{per_second: 1000, burst_count: 1000}}}}
"""


class MatrixServer(ServiceOnTrial):
    """People write through the client API, each with a token of their own."""

    name = "matrix"
    owner = "@ada:localhost"
    faults = False
    most_chars = 15_000

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = httpx.Client(base_url=url, timeout=60)
        self._tokens = {name: self._registered(name) for name in ("ada", "ben", "kelp")}
        self._rooms = {name: self._room(name, ["@kelp:localhost"], direct=True) for name in ("ada", "ben")}
        self.group = self._room("ada", ["@kelp:localhost", "@ben:localhost"])
        self._call("ben", "POST", f"join/{quote(self.group)}", {})
        self._count = itertools.count()

    def channel(self) -> dict[str, Any]:
        token = self._tokens["kelp"]
        return {
            "options": {"homeserver": self.url, "userId": "@kelp:localhost", "accessToken": token},
            "groups": [self.group],
        }

    def ready(self) -> None:
        """The agent is in the rooms that it was invited to, and hears what is said from now on."""
        for room in (*self._rooms.values(), self.group):
            while (
                "@kelp:localhost"
                not in self._call(
                    "ada" if room != self._rooms["ben"] else "ben",
                    "GET",
                    f"rooms/{quote(room)}/joined_members",
                )["joined"]
            ):
                time.sleep(0.05)

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
        who = "ben" if sender == "8" else "ada"
        content: dict[str, Any] = {"msgtype": "m.text", "body": text}
        if mention:
            content["m.mentions"] = {"user_ids": ["@kelp:localhost"]}
        if thread is not None:
            content["m.relates_to"] = {"rel_type": "m.thread", "event_id": thread}
        elif reply_to is not None:
            content["m.relates_to"] = {"m.in_reply_to": {"event_id": reply_to}}
        room = self.group if group else self._rooms[who]
        if file is not None:
            content |= self._uploaded(who, file)
        return self._send(who, room, content)

    def change(self, message_id: str, text: str) -> None:
        new = {"msgtype": "m.text", "body": text}
        about = {"rel_type": "m.replace", "event_id": message_id}
        self._send("ada", self._rooms["ada"], {**new, "m.new_content": new, "m.relates_to": about})

    def take_back(self, message_id: str) -> None:
        path = f"rooms/{quote(self._rooms['ada'])}/redact/{quote(message_id)}/t{next(self._count)}"
        self._call("ada", "PUT", path, {})

    def react(self, message_id: str, sign: str) -> None:
        about = {"rel_type": "m.annotation", "event_id": message_id, "key": sign}
        self._send("ada", self._rooms["ada"], {"m.relates_to": about}, kind="m.reaction")

    def shown(
        self, *, sender: str | None = None, group: bool = False, thread: str | None = None
    ) -> list[str]:
        who = "ben" if sender == "8" else "ada"
        found = self._events(who, self.group if group else self._rooms[who])
        changed = {
            one["content"]["m.relates_to"]["event_id"]: one["content"]["m.new_content"]["body"]
            for one in found
            if one["content"].get("m.new_content")
        }
        return [
            changed.get(one["event_id"], _body(one["content"]))
            for one in found
            if not one["content"].get("m.new_content") and _thread(one["content"]) == thread
        ]

    def signs(self) -> list[str]:
        found = self._events("ada", self._rooms["ada"], "m.reaction")
        return [one["content"]["m.relates_to"]["key"] for one in found]

    def changes(self) -> int:
        found = self._events("ada", self._rooms["ada"])
        return sum(1 for one in found if one["content"].get("m.new_content"))

    def last_id(self) -> str:
        return str(self._events("ada", self._rooms["ada"])[-1]["event_id"])

    def typed(self) -> bool:
        """It is told for some seconds after the last sign of it."""
        rooms = self._call("ada", "GET", "sync?timeout=0")["rooms"]["join"]
        told = rooms[self._rooms["ada"]]["ephemeral"]["events"]
        return any("@kelp:localhost" in one["content"].get("user_ids", ()) for one in told)

    def _events(self, who: str, room: str, kind: str = "m.room.message") -> list[dict[str, Any]]:
        path = f"rooms/{quote(room)}/messages?dir=b&limit=900"
        found = self._call(who, "GET", path)["chunk"]
        ours = [one for one in found if one["sender"] == "@kelp:localhost" and one["type"] == kind]
        return [one for one in reversed(ours) if one["content"]]

    def _send(self, who: str, room: str, content: dict[str, Any], kind: str = "m.room.message") -> str:
        path = f"rooms/{quote(room)}/send/{kind}/t{next(self._count)}"
        return str(self._call(who, "PUT", path, content)["event_id"])

    def _uploaded(self, who: str, file: tuple[str, str, bytes]) -> dict[str, Any]:
        name, mime, data = file
        told = self._http.post(
            f"/_matrix/media/v3/upload?filename={name}",
            content=data,
            headers={"Authorization": f"Bearer {self._tokens[who]}", "Content-Type": mime},
        ).json()
        kind = "m.image" if mime.startswith("image/") else "m.file"
        info = {"mimetype": mime, "size": len(data)}
        return {"msgtype": kind, "filename": name, "url": told["content_uri"], "info": info}

    def _room(self, who: str, invited: list[str], *, direct: bool = False) -> str:
        body = {"invite": invited, "is_direct": direct, "preset": "private_chat"}
        return str(self._call(who, "POST", "createRoom", body)["room_id"])

    def _registered(self, name: str) -> str:
        path = "/_synapse/admin/v1/register"
        nonce = self._http.get(path).json()["nonce"]
        signed = "\0".join((nonce, name, "pw", "notadmin")).encode()
        mac = hmac.new(SECRET.encode(), signed, hashlib.sha1).hexdigest()
        body = {"nonce": nonce, "username": name, "password": "pw", "admin": False, "mac": mac}
        return str(self._http.post(path, json=body).json()["access_token"])

    def _call(self, who: str, method: str, path: str, body: Any = None) -> dict[str, Any]:
        answer = self._http.request(
            method,
            f"/_matrix/client/v3/{path}",
            json=body,
            headers={"Authorization": f"Bearer {self._tokens[who]}"},
        )
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found


def _thread(content: dict[str, Any]) -> str | None:
    about = content.get("m.relates_to") or {}
    return about.get("event_id") if about.get("rel_type") == "m.thread" else None


def _body(content: dict[str, Any]) -> str:
    named = content["msgtype"] in ("m.file", "m.image")
    return f"<file {content['body']}>" if named else str(content["body"])


@contextmanager
def matrix(folder: Path) -> Iterator[MatrixServer]:
    if not PYTHON.exists():
        pytest.skip("matrix-synapse is not installed (HOLDFAST_SYNAPSE)")
    folder.mkdir(exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    made = folder / "homeserver.yaml"
    run = [str(PYTHON), "-m", "synapse.app.homeserver", "--config-path", str(made)]
    generate = ["--generate-config", "--server-name", "localhost", "--report-stats=no"]
    subprocess.run([*run, *generate], cwd=folder, check=True, capture_output=True)
    (folder / "more.yaml").write_text(MORE.format(port=port, folder=folder, secret=SECRET))
    server = subprocess.Popen(
        [*run, "--config-path", str(folder / "more.yaml")],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        end = time.monotonic() + 120
        while not _answers(url):
            assert time.monotonic() < end
            assert server.poll() is None
            time.sleep(0.1)
        yield MatrixServer(url)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False
