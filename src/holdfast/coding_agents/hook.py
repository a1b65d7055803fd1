"""What a coding agent runs at each of its events: logs what was said and done, and gives back the block.

Run as a file by a bare interpreter (`python -I -S hook.py HOST HOME`), so that it starts at once: it imports
nothing but the standard library, and no other part of Holdfast. It never breaks or slows its host: it ends
with 0 whatever happens, gives up after a second and a half, starts no process, and asks no model. What could
not be delivered waits in a file of its own in the home, and is delivered with the next event, once.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import signal
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

LIMIT_SECONDS = 1.5
MOST_INPUT = 16 * 1024 * 1024
MOST_TEXT = 200_000
MOST_TOOL = 8_000
MOST_WAITING = 10_000
BATCH = 100
BATCH_BYTES = 4 * 1024 * 1024
START_CHARS = 2_200
PROMPT_CHARS = 1_400
SESSION_CHARS = 12_000
KEEP_DAYS = 14
HOOKS = "hooks"
TOKEN = "coding_agents_token"
TAKEN, LATER, REFUSED = "taken", "later", "refused"
OWN_TOOLS = "mcp__holdfast__"
"""What was read from here is not written here again."""


def main() -> None:
    """Ends with 0: to a host 2 means that the prompt or the stop is refused, and others are shown."""
    try:
        host, home = sys.argv[1], Path(sys.argv[2])
        with Alarm(LIMIT_SECONDS):
            event = json.loads(sys.stdin.buffer.read(MOST_INPUT))
        told = Hook(host, home, event, time.monotonic() + LIMIT_SECONDS).run()
        if told:
            sys.stdout.write(json.dumps(told))
            sys.stdout.flush()
    except BaseException as error:  # noqa: BLE001 - a hook that fails must be as if it were not there
        with suppress(BaseException):
            note(Path(sys.argv[2]), f"{type(error).__name__}: {error}")
    os._exit(0)


def note(home: Path, what: str) -> None:
    """Leave word of a fault where the doctor of the home finds it; one line, the last one counts."""
    folder = home / HOOKS
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / "last_error").write_text(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {what[:500]}\n")


class Hook:
    """One event of a host."""

    def __init__(self, host: str, home: Path, event: dict[str, Any], deadline: float) -> None:
        self.host = host
        self.home = home
        self.event = event
        self.deadline = deadline
        self.name = str(event.get("hook_event_name") or "")
        self.session = str(event.get("session_id") or "unknown")[:120]
        self.key = session_key(host, str(event.get("cwd") or ""), self.session)
        self.folder = home / HOOKS
        self.gateway = Gateway(home, deadline)

    def run(self) -> dict[str, Any] | None:
        """Log the event, deliver what waits, and answer with context where the host takes it."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        entries = entries_of(self.host, self.key, self.event)
        wanted = self.name in ("SessionStart", "UserPromptSubmit") and not self.event.get("agent_id")
        text = self._context() if wanted else ""
        if entries and self._deliver(entries) == LATER:
            keep(self.folder, entries)
        else:
            self._drain()
        if entries:
            self._remember_session()
        if not text:
            return None
        return {"hookSpecificOutput": {"hookEventName": self.name, "additionalContext": text}}

    def _deliver(self, entries: list[dict[str, Any]]) -> str:
        """Whether the gateway has them, may have them later, or will never take them as they are."""
        status, _ = self.gateway.call("POST", "/api/ingest", body=entries)
        if status == 202:
            return TAKEN
        if 400 <= status < 500 and status not in (401, 403, 404, 408, 429):
            note(self.home, f"the gateway refused what it was sent: {status}")
            return REFUSED
        return LATER

    def _drain(self) -> None:
        """Deliver what waits, oldest first, as far as there is time; keys make each be written once.

        Where the gateway refuses some of it, what it will never take is set aside and the rest goes on.
        """
        for files, batch in waiting(self.folder):
            answer = LATER if self.gateway.down else self._deliver([one for part in batch for one in part])
            for file, entries in zip(files, batch, strict=True):
                each = answer if answer != REFUSED or len(files) == 1 else self._deliver(entries)
                if each == LATER:
                    return
                with suppress(OSError):
                    set_aside(file) if each == REFUSED else file.unlink()

    def _context(self) -> str:
        """The block: whole when a session begins or was compacted; later only what is new in it."""
        begins = self.name == "SessionStart"
        state = State(self.folder, self.host, self.session)
        if begins:
            state.forget()
            prune(self.folder)
        if not begins and state.chars >= SESSION_CHARS:
            return ""
        prompt = str(self.event.get("prompt") or "")
        if not begins and (len(prompt) < 12 or prompt.startswith("/")):
            return ""
        query = {
            "q": prompt[:2000],
            "sessionKey": self._previous() if begins else self.key,
            "mode": "cheap" if begins else "auto",
            "maxChars": START_CHARS if begins else PROMPT_CHARS,
        }
        status, body = self.gateway.call("GET", f"/api/context?{urlencode(query)}")
        block = body.get("block") if status == 200 and isinstance(body, dict) else None
        return state.fresh(block, whole=begins) if isinstance(block, str) else ""

    def _previous(self) -> str:
        """Whose last words a session begins with: its own if it goes on, else those of the project's last."""
        if self.event.get("source") in ("resume", "compact"):
            return self.key
        with suppress(OSError, ValueError):
            return str(json.loads(self._project().read_text())["key"])
        return self.key

    def _remember_session(self) -> None:
        write(self._project(), {"key": self.key})

    def _project(self) -> Path:
        place = hashlib.sha256(f"{self.host}\n{self.event.get('cwd')}".encode()).hexdigest()[:16]
        return self.folder / f"project-{place}.json"


class State:
    """What a session was given already, so that nothing is put into it again and again."""

    def __init__(self, folder: Path, host: str, session: str) -> None:
        name = hashlib.sha256(f"{host}\n{session}".encode()).hexdigest()[:24]
        self._path = folder / f"session-{name}.json"
        self._seen: list[str] = []
        self.chars = 0
        with suppress(OSError, ValueError, KeyError, TypeError):
            kept = json.loads(self._path.read_text())
            self._seen, self.chars = list(kept["seen"]), int(kept["chars"])

    def forget(self) -> None:
        self._seen, self.chars = [], 0

    def fresh(self, block: str, *, whole: bool) -> str:
        """The block with the lines that the session has not had; nothing if it has had them all."""
        lines = [line for line in block.splitlines() if line.startswith("- ")]
        new = [line for line in lines if _mark(line) not in self._seen]
        if not new:
            return ""
        text = block if whole else _only(block, set(new))
        self._seen = (self._seen + [_mark(line) for line in new])[-500:]
        self.chars += len(text)
        write(self._path, {"seen": self._seen, "chars": self.chars})
        return text


def _mark(line: str) -> str:
    return hashlib.sha256(line.encode("utf-8", "replace")).hexdigest()[:12]


def _only(block: str, new: set[str]) -> str:
    """The block with only these lines in it, and no title that nothing stands under."""
    kept: list[str] = []
    for line in block.splitlines():
        if line.startswith("- ") and line not in new:
            continue
        if kept and kept[-1].endswith(":") and not line.startswith("- "):
            kept.pop()
        kept.append(line)
    return "\n".join(kept)


def session_key(host: str, cwd: str, session: str) -> str:
    """One key a session, under its project's name."""
    name = "".join(ch if ch.isalnum() else "-" for ch in os.path.basename(cwd.rstrip("/\\")))[:60] or "home"
    return f"{host}:{name}|thread:{session}"


def entries_of(host: str, key: str, event: dict[str, Any]) -> list[dict[str, Any]]:
    """What an event has to say for the log, word for word."""
    name, turn = event.get("hook_event_name"), str(event.get("prompt_id") or event.get("turn_id") or "")
    session = str(event.get("session_id") or "")
    if name == "UserPromptSubmit":
        text, author = event.get("prompt"), "user"
    elif name == "Stop":
        text, author = event.get("last_assistant_message"), host
    elif name == "PostToolUse" and not str(event.get("tool_name")).startswith(OWN_TOOLS):
        return [_action(host, key, event, session)]
    else:
        return []
    if not isinstance(text, str) or not text.strip():
        return []
    said = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
    same = f"{turn}:{said}" if turn else uuid.uuid4().hex
    return [_entry(host, key, event, text[:MOST_TEXT], author, f"{host}:{session}:{name}:{same}")]


def _action(host: str, key: str, event: dict[str, Any], session: str) -> dict[str, Any]:
    """A tool call: what was done in a line, and the call with its outcome, cut, beside it."""
    given = event.get("tool_input")
    text = tool_line(str(event.get("tool_name") or "tool"), given)
    same = str(event.get("tool_use_id") or uuid.uuid4().hex)
    entry = _entry(host, key, event, text, host, tool_key(host, session, same))
    whole = json.dumps({"input": given, "response": event.get("tool_response")}, ensure_ascii=False)
    return {**entry, "type": "action", "raw": whole[:MOST_TOOL]}


def tool_key(host: str, session: str, id_: str) -> str:
    """What a tool call is known by in the log, whoever brings it: its hook or its session's file."""
    return f"{host}:{session}:tool:{id_}"


def tool_line(name: str, given: object) -> str:
    """A tool call in a line: the tool, and what of its input says most."""
    if isinstance(given, dict):
        telling = ("command", "cmd", "file_path", "path", "pattern", "url", "query")
        given = next((given[name] for name in telling if given.get(name)), given)
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    return f"{name}: {' '.join(text.split())[:300]}"


def _entry(host: str, key: str, event: dict[str, Any], text: str, author: str, same: str) -> dict[str, Any]:
    source = {"channel": host, "sessionKey": key, "cwd": event.get("cwd")}
    made = {
        "content": text,
        "type": "conversation",
        "agentId": author,
        "source": source,
        "createdAt": int(time.time() * 1000),
        "idempotencyKey": same[:500],
    }
    return made if author == "user" else {**made, "agentLabel": host}


def keep(folder: Path, entries: list[dict[str, Any]]) -> None:
    """Put entries aside until the gateway is there; the file appears whole or not at all."""
    spool = folder / "spool"
    spool.mkdir(mode=0o700, exist_ok=True)
    if sum(1 for _ in os.scandir(spool)) >= MOST_WAITING:
        raise OSError("too much waits to be delivered; start the gateway")
    write(spool / f"{time.time_ns():020d}-{os.getpid()}.json", entries)


def set_aside(file: Path) -> None:
    """Keep what cannot be delivered out of the way of the rest, for a person to look at."""
    file.rename(file.with_suffix(".refused"))


def waiting(folder: Path) -> list[tuple[list[Path], list[list[dict[str, Any]]]]]:
    """What waits, in batches of files with what is in each, in the order in which it happened."""
    found: list[tuple[list[Path], list[list[dict[str, Any]]]]] = [([], [])]
    size = 0
    for file in sorted((folder / "spool").glob("*.json"))[: 5 * BATCH]:
        try:
            text = file.read_text()
            entries = json.loads(text)
            if not isinstance(entries, list):
                raise ValueError("not a list")
        except (OSError, ValueError):
            with suppress(OSError):
                set_aside(file)
            continue
        if len(found[-1][1]) >= BATCH or size + len(text) > BATCH_BYTES:
            found.append(([], []))
            size = 0
        found[-1][0].append(file)
        found[-1][1].append(entries)
        size += len(text)
    return [one for one in found if one[1]]


def prune(folder: Path) -> None:
    """Forget what was given to sessions that ended long ago."""
    over = time.time() - KEEP_DAYS * 86_400
    for file in folder.glob("session-*.json"):
        with suppress(OSError):
            if file.stat().st_mtime < over:
                file.unlink()


def write(path: Path, value: object) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    file = os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    with os.fdopen(file, "w", encoding="utf-8", errors="replace") as stream:
        json.dump(value, stream, ensure_ascii=False)
    os.replace(draft, path)


class Alarm:
    """Ends what takes too long, however slowly it comes: a socket's own limit begins anew with each byte."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        if hasattr(signal, "setitimer"):
            signal.signal(signal.SIGALRM, self._late)
            signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def __exit__(self, *exc: object) -> None:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)

    @staticmethod
    def _late(*_: object) -> None:
        raise TimeoutError("too slow")


class Gateway:
    """The gateway of a home, where it says that it listens. Once it did not answer it is not asked again."""

    def __init__(self, home: Path, deadline: float) -> None:
        self._deadline = deadline
        self.down = True
        with suppress(OSError, ValueError, KeyError, TypeError):
            self._url = urlsplit(str(json.loads((home / "gateway.json").read_text())["url"]))
            folder = home / "credentials"
            own = folder / TOKEN
            self._token = (own if own.is_file() else folder / "token").read_text().strip()
            self.down = self._url.scheme != "http"

    def call(self, method: str, path: str, body: object = None) -> tuple[int, object]:
        """Status and JSON of an answer; 0 if there was none in time."""
        left = self._deadline - time.monotonic()
        if self.down or left <= 0.05:
            return 0, None
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        sent = None if body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection(self._url.hostname or "", self._url.port, timeout=left)
        try:
            with Alarm(left):
                connection.request(method, path, body=sent, headers=headers)
                answer = connection.getresponse()
                return answer.status, json.loads(answer.read(4 * 1024 * 1024) or b"null")
        except (OSError, http.client.HTTPException, ValueError):
            self.down = True
            return 0, None
        finally:
            connection.close()


if __name__ == "__main__":
    main()
