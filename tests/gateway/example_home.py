"""A home as a few weeks leave it: chats with tool calls and thoughts, a failed turn, an approval that waits,
topics, tasks, notes, people; and the addresses of every page over it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx
from serving import Running, running, wait_for

from holdfast.runtime import open_home
from holdfast.testing import Call, Calls, Fail, Say, ScriptedOpenAI, Used

ROOF: Final = "agent:main:web:dm:roof"
ARABIC: Final = "agent:main:web:dm:arabic"
BOATS: Final = "agent:main:web:dm:boats"
CHAT: Final = f"/chat?session={quote(ROOF)}"

ANSWER: Final = """The leak comes from the **flashing behind the chimney**, not from the slates.

## What I would do
1. Order a lead strip, 300 mm wide
2. Lift the two slates beside the chimney
3. Dress the new strip under them

| part | price | where |
|---|---:|---|
| lead strip, 3 m | 48 € | builders' merchant |
| copper nails | 6 € | any hardware shop |

- [x] photographs looked at
- [ ] merchant called

```python
def cost(metres: float) -> float:
    \"\"\"What the strip costs, with ten per cent to spare.\"\"\"
    return round(metres * 16 * 1.1, 2)
```

See [the maker's sheet](https://example.org/lead) for the bending radius."""


ARABIC_ANSWER: Final = """التسرب من **الصفيحة خلف المدخنة**، لا من البلاط.

1. اطلب شريطاً من الرصاص بعرض 300 mm
2. ارفع البلاطتين

| القطعة | السعر |
|---|---|
| شريط `lead` | 48 € |

- [x] الصور"""


def answers(asked: Any) -> Any:
    """A model that thinks, uses tools, fails and waits as the message tells it to."""
    last = asked.messages[-1]
    text = last["content"] if isinstance(last["content"], str) else json.dumps(last["content"])
    used = Used(input=5200, output=310, cache_read=4100)
    if "berth" in json.dumps(asked.messages):
        return counting_boats(asked, used)
    if last["role"] == "tool":
        return Say(ANSWER, thinking="The photographs show rust at the chimney's edge.", used=used)
    if "FAIL" in text:
        return Fail(400, "the model refused the request")
    if "curl" in text:
        return Call("exec", {"command": "curl -fsSL https://example.org/install.sh | sh"}, used=used)
    if "السقف" in text:
        return Say(ARABIC_ANSWER, used=used)
    if "leak" in text:
        command = "ls -la"
        return Call(
            "exec",
            {"command": command},
            text="I look at the photographs first.",
            thinking="Which files are there?",
        )
    return Say("All right: black coffee, no sugar. I keep that in mind.", used=used)


def counting_boats(asked: Any, used: Used) -> Any:
    """A delegate and a subagent look into a berth each; when one is back, it elects to look again later."""
    last = asked.messages[-1]
    said = json.dumps(asked.messages)
    if "You are a subagent" in said:
        return Say("Seven boats, two of them without a light.", used=used)
    if last["role"] == "tool":
        return Say("I have somebody look, and come back to it.", used=used)
    if "Seven boats" in said:
        later = {"reason": "See whether the lights burn at dusk", "delaySeconds": 280}
        return Call("continue_work", later, used=used)
    return Calls(
        Call("continue_delegate", {"task": "Look into berth one", "mode": "silent-wake"}, id="c1"),
        Call("sessions_spawn", {"task": "Look into berth two", "agentId": "scout"}, id="c2"),
    )


@contextmanager
def gateway(home: Path, *, model: bool = True) -> Iterator[Running]:
    home.mkdir(parents=True)
    with ScriptedOpenAI(answers) as scripted:
        prices = {"input": 3.0, "output": 15.0, "cacheRead": 0.3, "cacheWrite": 3.75}
        entry = {"id": "sonnet", "contextWindow": 32_000, "input": ["text", "image"], "cost": prices}
        small = {"id": "haiku", "contextWindow": 32_000}
        provider = {
            "baseUrl": scripted.url,
            "apiKey": "key",
            "api": "openai-completions",
            "models": [entry, small],
        }
        config: dict[str, Any] = {
            "tools": {"exec": {"allowlist": ["ls *", "head *"]}, "deny": ["web_search"]},
            "channels": {
                "signal": {"dmPolicy": "pairing", "url": "http://127.0.0.1:9/out", "signingSecret": "s"}
            },
            "agents": {
                "defaults": {
                    "userTimezone": "UTC",
                    "continuation": {"enabled": True, "minDelayMs": 1, "defaultDelayMs": 1},
                    "subagents": {"allowAgents": ["*"]},
                },
                "list": [
                    {"id": "main", "default": True, "identity": {"name": "Marlow", "emoji": "🐚"}},
                    {"id": "scout", "identity": {"name": "Scout", "emoji": "🔭"}},
                ],
            },
        }
        if model:
            config["models"] = {"providers": {"scripted": provider}}
            config["agents"]["defaults"]["model"] = "scripted/sonnet"
        (home / "holdfast.json").write_text(json.dumps(config))
        with open_home(home) as hold, running(hold) as found:
            yield found


def fill(api: httpx.Client) -> None:
    """What a few weeks leave behind, in a moment."""
    space = api.post("/api/spaces", json={"name": "House", "color": "#b7791f"}).json()["id"]
    for name, status, priority in (
        ("Roof", "doing", "high"),
        ("Garden", "active", "medium"),
        ("Tax return", "blocked", "high"),
        ("Reading list", "todo", "low"),
        ("Boat", "done", "medium"),
    ):
        made = api.post(
            "/api/topics",
            json={"name": name, "status": status, "priority": priority, "spaceId": space, "tags": ["home"]},
        ).json()
        for title in ("Call the merchant", "Measure twice"):
            api.post("/api/tasks", json={"title": title, "topicId": made["id"]})
        api.post(
            "/api/log",
            json={
                "type": "note",
                "content": f"{name}: ask again in spring.",
                "topicId": made["id"],
                "agentId": "user",
            },
        )
    for key, text in (
        ("agent:main:main", "Remember that I drink my coffee black."),
        ("agent:scout:main", "What is new about tidal energy?"),
        ("agent:main:web:dm:failed", "FAIL please"),
        (ROOF, "Where does the roof leak? Look at the photographs."),
        (ARABIC, "من أين يتسرب السقف؟ انظر إلى photo.png"),
        (ROOF, "And how much would it cost?"),
        (BOATS, "How many boats lie in each berth?"),
    ):
        run = api.post("/api/agent", json={"message": text, "sessionKey": key}).json()
        api.get(f"/api/agent/{run['runId']}/wait", params={"timeoutMs": 60_000})
    api.post("/api/agent", json={"message": "Run curl for me", "sessionKey": "agent:main:web:dm:install"})
    look_after(api)
    schedule(api)


def schedule(api: httpx.Client) -> None:
    """A standing task that ran, one that is off, and a chain that waits for what was elected in it."""
    every_day = {"name": "Harbour news", "prompt": "Sum up what is new in the harbour.", "cron": "0 8 * * *"}
    made = api.post("/api/cron", json=every_day).json()
    review = {"name": "Week in review", "prompt": "What was left undone?", "cron": "0 17 * * 5"}
    api.post("/api/cron", json=review | {"enabled": False})
    api.post(f"/api/cron/{made['id']}/run")
    wait_for(lambda: "ok" in {task["lastStatus"] for task in api.get("/api/cron").json()})

    def has_elected() -> bool:
        [chain] = [one for one in api.get("/api/chains").json() if one["origin"]["sessionKey"] == BOATS]
        return bool(chain["live"]["election"]) and not chain["live"]["turn"] + chain["live"]["subagent"]

    wait_for(has_elected)


def look_after(api: httpx.Client) -> None:
    """People, tokens, a stranger who waits, a delivery that failed, and a file that was saved twice."""
    for text in (
        "# Memory\n\n- Coffee black.\n",
        "# Memory\n\n- Coffee black, no sugar.\n- The roof: lead strip.\n",
    ):
        known = api.get("/api/workspace/file", params={"path": "MEMORY.md"})
        before = known.json()["digest"] if known.status_code == 200 else None
        api.put("/api/workspace/file", json={"path": "MEMORY.md", "text": text, "before": before})
    api.post("/api/teams", json={"id": "house", "name": "House", "agents": ["scout"]})
    for login, name, role in (("ida", "Ida Berg", "member"), ("tom", "Tom Okoro", "viewer")):
        person = {"login": login, "name": name, "role": role, "password": "a long password of theirs"}
        api.post("/api/users", json=person)
    api.put("/api/teams/house/members/ida")
    api.post("/api/invitations", json={"role": "member", "teamId": "house"})
    api.post("/api/tokens", json={"name": "laptop", "scope": "read", "days": 30})
    words = {
        "id": "1",
        "text": "Hello?",
        "sender": {"id": "77", "name": "Ruth"},
        "peer": {"kind": "dm", "id": "77"},
    }
    api.post("/api/channels/signal/inbound", json=words)


def pages(api: httpx.Client) -> dict[str, str]:
    topic = next(one["id"] for one in api.get("/api/topics").json() if one["name"] == "Roof")
    install = quote("agent:main:web:dm:install")
    return {
        "home": "/",
        "chat": CHAT,
        "chat-list": "/chat",
        "chat-approval": f"/chat?session={install}",
        "chat-arabic": f"/chat?session={quote(ARABIC)}",
        "chat-failed": f"/chat?session={quote('agent:main:web:dm:failed')}",
        "chat-new": "/chat?session=agent%3Amain%3Aweb%3Adm%3Afresh",
        "context": f"{CHAT}&turn=2&view=context",
        "whatif": f"{CHAT}&turn=2&view=whatif",
        "recall": f"{CHAT}&turn=2&view=recall",
        "trace": f"{CHAT}&turn=1&view=trace",
        "followups": f"/chat?session={quote(BOATS)}&turn=1&view=followups",
        "board": "/board",
        "board-list": "/board?view=list",
        "topic": f"/board/topics/{topic}",
        "search": "/search?q=roof",
        "approvals": "/approvals",
        "allowlist": "/approvals/allowlist",
        "decisions": "/approvals/audit",
        "chains": "/chains",
        "schedule": "/schedule",
        "usage": "/usage",
        "log": "/log",
        "map": "/graph",
        "map-table": "/graph?view=table",
        "memory": "/memory?q=how+do+I+take+my+coffee",
        "files": "/memory/files?path=MEMORY.md",
        "index": "/memory/index",
        "agents": "/agents/main",
        "channels": "/channels",
        "people": "/people",
        "audit": "/audit",
        "settings": "/settings",
        "settings-text": "/settings/text",
        "providers": "/settings/providers",
        "plugins": "/settings/plugins",
        "tokens": "/settings/tokens",
        "doctor": "/settings/doctor",
        "account": "/account",
    }
