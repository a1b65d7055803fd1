"""What someone asks of an agent, and what they are told at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from holdfast.agents.routing import Origin
from holdfast.clock import Millis
from holdfast.config.agents import Thinking
from holdfast.context import Image, Occasion, ToolSpec, Trust
from holdfast.errors import InvalidInput, TooLarge
from holdfast.log import Audience

MAX_TEXT: Final = 1_000_000
MAX_IMAGES: Final = 16
MAX_IMAGE_CHARS: Final = 16_000_000

Mode = Literal["queue", "collect", "steer", "interrupt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliver:
    """Where the reply goes besides the log: a parcel for a surface, posted with the commit.

    `heard` is who hears it there, where that is known; if not, only what the owner sends goes there.
    """

    kind: str
    target: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    heard: Audience | None = None

    def json(self) -> dict[str, Any]:
        kept: dict[str, Any] = {"kind": self.kind, "target": self.target, "payload": dict(self.payload)}
        return kept if self.heard is None else kept | {"heard": self.heard}


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What an answer must be: JSON that fits a schema; without one, any JSON object."""

    schema: Mapping[str, Any] | None = None
    name: str = "answer"
    strict: bool | None = None

    def json(self) -> dict[str, Any]:
        kept = {"schema": self.schema, "name": self.name, "strict": self.strict}
        return {name: value for name, value in kept.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A message for an agent. Without a session key it goes where its origin leads, else to `main`.

    `mode` says what becomes of it while a turn runs; unset: as `messages.queue` has it. `source` is kept with
    the entry. Anything but `trigger="user"` comes from within: it keeps no session fresh and is no command.
    `tools` are run by whoever asks: a call of one ends the turn and is handed over. One of `must_call` has to
    be called; `form` is what the reply has to be. `heard` is who hears the surface that it comes from, where
    that is known better than from the session's key. `owner_sent` says that the owner chose by hand where the
    reply goes; `limited_to` are the agents whose words the asker may read at most. `by_token` says that it
    was asked with a token of the home's: whoever holds that may speak in the owner's sessions. `one_off` says
    that its session ends with it: nobody would see what went on there later, so nothing can be sent off.
    """

    text: str
    session_key: str | None = None
    agent_id: str | None = None
    origin: Origin | None = None
    thread_id: str | None = None
    source: Mapping[str, Any] = field(default_factory=dict)
    images: tuple[Image, ...] = ()
    model: str | None = None
    thinking: Thinking | None = None
    key: str | None = None
    sender: str | None = None
    sender_label: str | None = None
    owner: bool = True
    deliver: Deliver | None = None
    mode: Mode | None = None
    trigger: str = "user"
    trust: Trust = Trust.USER
    occasion: Occasion = Occasion.MESSAGE
    timeout_seconds: int | None = None
    commands: bool = True
    tools: tuple[ToolSpec, ...] = ()
    must_call: tuple[str, ...] = ()
    form: Form | None = None
    heard: Audience | None = None
    owner_sent: bool = False
    limited_to: tuple[str, ...] | None = None
    by_token: bool = False
    one_off: bool = False

    def __post_init__(self) -> None:
        if not self.text.strip() and not self.images:
            raise InvalidInput("there is nothing to say", hint="Send some text or a picture.")
        if len(self.text) > MAX_TEXT:
            raise TooLarge(f"the message has {len(self.text):,} characters; {MAX_TEXT:,} are the most")
        if len(self.images) > MAX_IMAGES or sum(len(i.data) for i in self.images) > MAX_IMAGE_CHARS:
            raise TooLarge("too many or too large pictures", hint=f"Send at most {MAX_IMAGES}, and smaller.")

    @property
    def external(self) -> bool:
        return self.trigger == "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The word that a message is stored and will be answered; `reply` is there if it was answered at once.

    `joined` says that it became part of a turn that was there already; its run is that turn's. `told` is what
    ended with a session that it left.
    """

    run_id: str
    accepted_at: Millis
    session_key: str
    session_id: str
    turn: int
    entry_id: str | None = None
    created: bool = True
    joined: bool = False
    reset: str | None = None
    reply: str | None = None
    told: str | None = None

    def json(self) -> dict[str, Any]:
        from holdfast.clock import iso

        told: dict[str, Any] = {
            "runId": self.run_id,
            "acceptedAt": iso(self.accepted_at),
            "sessionKey": self.session_key,
            "sessionId": self.session_id,
            "turn": self.turn,
            "entryId": self.entry_id,
            "joined": self.joined,
        }
        more = {"reset": self.reset, "reply": self.reply, "told": self.told}
        return told | {name: value for name, value in more.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What of an ask the turn needs when it runs; kept with the turn, so that it can be resumed."""

    agent_id: str
    model: str | None = None
    thinking: Thinking | None = None
    sender: str | None = None
    owner: bool = True
    channel: str | None = None
    occasion: Occasion = Occasion.MESSAGE
    prompt: str | None = None
    system_prompt: str | None = None
    timeout_seconds: int | None = None
    deliver: Deliver | None = None
    tools: tuple[ToolSpec, ...] = ()
    must_call: tuple[str, ...] = ()
    form: Form | None = None
    owner_sent: bool = False
    limited_to: tuple[str, ...] | None = None
    one_off: bool = False

    @property
    def lent(self) -> frozenset[str]:
        """The names of the tools that whoever asked runs himself."""
        return frozenset(tool.name for tool in self.tools)

    def json(self) -> dict[str, Any]:
        kept: dict[str, Any] = {
            "agentId": self.agent_id,
            "model": self.model,
            "thinking": self.thinking,
            "sender": self.sender,
            "channel": self.channel,
            "prompt": self.prompt,
            "systemPrompt": self.system_prompt,
            "timeoutSeconds": self.timeout_seconds,
        }
        kept = {name: value for name, value in kept.items() if value is not None}
        kept |= {} if self.owner else {"owner": False}
        kept |= {"ownerSent": True} if self.owner_sent else {}
        kept |= {"oneOff": True} if self.one_off else {}
        kept |= {} if self.limited_to is None else {"limitedTo": list(self.limited_to)}
        kept |= {} if self.occasion is Occasion.MESSAGE else {"occasion": self.occasion.value}
        if self.deliver is not None:
            kept["deliver"] = self.deliver.json()
        if self.tools:
            kept["tools"] = [
                {"name": t.name, "description": t.description, "parameters": dict(t.parameters)}
                for t in self.tools
            ]
        kept |= {"mustCall": list(self.must_call)} if self.must_call else {}
        kept |= {} if self.form is None else {"form": self.form.json()}
        return kept

    @classmethod
    def read(cls, kept: Mapping[str, Any], default_agent: str) -> Terms:
        """From a turn's notes; a turn that was accepted by another program has none of them."""
        to = kept.get("deliver")
        return cls(
            agent_id=str(kept.get("agentId") or default_agent),
            model=kept.get("model"),
            thinking=kept.get("thinking"),
            sender=kept.get("sender"),
            owner=kept.get("owner", True) is True,
            channel=kept.get("channel"),
            occasion=Occasion(kept.get("occasion", Occasion.MESSAGE)),
            prompt=kept.get("prompt"),
            system_prompt=kept.get("systemPrompt"),
            timeout_seconds=kept.get("timeoutSeconds"),
            deliver=None if to is None else Deliver(**to),
            tools=tuple(ToolSpec(**tool) for tool in kept.get("tools") or ()),
            must_call=tuple(kept.get("mustCall") or ()),
            form=Form(**form) if (form := kept.get("form")) is not None else None,
            owner_sent=kept.get("ownerSent") is True,
            one_off=kept.get("oneOff") is True,
            limited_to=None if (to_agents := kept.get("limitedTo")) is None else tuple(to_agents),
        )
