"""Webhooks: a signed call gives an agent a turn on what it brings, which stays data from outside.

`X-Holdfast-Signature: sha256=<hex>` is the HMAC-SHA256 of the body, or, with `X-Holdfast-Timestamp: <unix
seconds>`, of `<timestamp>.<body>`, which then must not lie too far from our own time. GitHub's
`X-Hub-Signature-256` is that of the body.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from holdfast.agents.cron.firing import Accept, CronParts
from holdfast.agents.cron.tasks import hook_calls as table
from holdfast.agents.heartbeat.state import last_surface, session_key
from holdfast.agents.loop.asks import Ask
from holdfast.clock import DAY_MS
from holdfast.config.extensions import HooksConfig, Webhook
from holdfast.context import Text, Trust
from holdfast.errors import Busy, ConfigError, InvalidInput, TooLarge, Unauthorized
from holdfast.log import FOR_ANYONE, SYSTEM, Tx
from holdfast.text import clean_text, clip

OURS: Final = "x-holdfast-signature"
TIME: Final = "x-holdfast-timestamp"
GITHUB: Final = "x-hub-signature-256"
HEADERS: Final = (OURS, GITHUB)
DELIVERIES: Final = ("x-holdfast-delivery", "x-github-delivery")
_PREFIX: Final = "sha256="
_MOST_ID: Final = 200


@dataclass(frozen=True, slots=True)
class Call:
    """A call whose signature holds. The same `proof` again is the same call again, whoever sends it; the
    sender's own id for it makes a repeat with a new time the same call too."""

    proof: str
    delivery_id: str | None


def sign(secret: bytes, body: bytes, timestamp: int | None = None) -> str:
    """The value of the signature header, as a sender makes it."""
    text = body if timestamp is None else f"{timestamp}.".encode() + body
    return _PREFIX + hmac.new(secret, text, hashlib.sha256).hexdigest()


def signed_call(secret: bytes, headers: Mapping[str, str], body: bytes, now: int, tolerance_ms: int) -> Call:
    """The call, or `Unauthorized`, which tells nothing of why. Header names are in lower case."""
    ours = headers.get(OURS)
    given = ours or headers.get(GITHUB) or ""
    stamp = _stamp(headers.get(TIME)) if ours and TIME in headers else None
    expected = sign(secret, body, stamp)
    holds = hmac.compare_digest(expected.encode(), given.strip().lower().encode("utf-8", "replace"))
    in_time = stamp is None or abs(now - stamp * 1000) <= tolerance_ms
    if not secret or not holds or not in_time:
        raise signature_refused()
    named = next((headers[name] for name in DELIVERIES if headers.get(name)), None)
    proof = hashlib.sha256(expected.encode()).hexdigest()[:40]
    return Call(proof, None if named is None else named[:_MOST_ID])


def signature_refused() -> Unauthorized:
    """The one answer to a call that is not let in: unknown, switched off, unsigned, badly signed or late."""
    return Unauthorized(
        "the signature does not hold",
        code="bad_signature",
        hint="Sign the body with the webhook's secret; see docs/heartbeat.md.",
    )


def _stamp(text: str | None) -> int:
    digits = (text or "").strip()
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 12):
        raise signature_refused()
    return int(digits)


MOST_FIELD: Final = 4_000
MOST_TEXT: Final = 32_000
_FIELD: Final = re.compile(r"\{\{\s*([\w.@$-]{1,200}|\.)\s*\}\}")


def fill_template(template: str | None, body: Any) -> str:
    """The template with its fields filled in, once: what a field holds is never read as a template."""
    if template is None:
        return clip(clean_text(json.dumps(body, ensure_ascii=False, indent=2)), MOST_TEXT)
    filled = _FIELD.sub(lambda found: _shown(body, found[1]), template)
    return clip(clean_text(filled), MOST_TEXT)


def _shown(body: Any, path: str) -> str:
    value = body if path == "." else _at(body, path.split("."))
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return clip(text, MOST_FIELD)


def _at(value: Any, steps: list[str]) -> Any:
    for step in steps:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isascii() and step.isdecimal() and len(step) < 10:
            value = value[int(step)] if int(step) < len(value) else None
        else:
            return None
    return value


log = logging.getLogger(__name__)

TRIGGER: Final = "hook"
KEPT_MS: Final = 30 * DAY_MS
_MINUTE: Final = 60_000
_PRUNED: Final = 200


@dataclass(frozen=True, slots=True)
class Received:
    """The run that a call was given; `created` is false for one that was here before."""

    run_id: str
    created: bool


class Webhooks:
    """Takes calls in. `env` is where secrets that the config names are looked up."""

    def __init__(self, parts: CronParts, accept: Accept, env: Mapping[str, str]) -> None:
        self._parts = parts
        self._accept = accept
        self._env = env

    async def receive(self, name: str, headers: Mapping[str, str], body: bytes) -> Received:
        """Check and store a call, which promises its turn; a repeat finds the first one's run."""
        return await self._parts.threads(self._receive, name, headers, body)

    def _receive(self, name: str, headers: Mapping[str, str], body: bytes) -> Received:
        hooks = self._parts.config().hooks
        hook = hooks.webhooks.get(name) if hooks.enabled else None
        if hook is not None and len(body) > hook.max_bytes:
            raise TooLarge(f"the body is larger than {hook.max_bytes} bytes")
        call = self._verified(name, hook if self._has_token(hooks, headers) else None, headers, body)
        assert hook is not None
        text = _event(headers) + fill_template(hook.template, _parsed(body))
        return self._parts.store.run(SYSTEM, lambda tx: self._taken(tx, name, hook, call, text))

    def _verified(self, name: str, hook: Webhook | None, headers: Mapping[str, str], body: bytes) -> Call:
        """As much work for a webhook that is not there as for a bad signature."""
        secret = b"" if hook is None or not hook.enabled else self._secret(name, hook)
        tolerance = 0 if hook is None else hook.tolerance_seconds * 1000
        return signed_call(secret, headers, body, self._parts.store.clock.now(), tolerance)

    def _has_token(self, hooks: HooksConfig, headers: Mapping[str, str]) -> bool:
        """Whether the caller sent the token of all webhooks, where there is one."""
        if hooks.token is None:
            return True
        scheme, _, rest = headers.get("authorization", "").partition(" ")
        given = rest.strip() if scheme.lower() == "bearer" else headers.get("x-holdfast-token", "")
        try:
            wanted = hooks.token.reveal(self._env)
        except ConfigError as error:
            log.error("hooks.token cannot be used: %s", error.message)
            raise signature_refused() from error
        return hmac.compare_digest(wanted.encode(), given.encode("utf-8", "replace"))

    def _secret(self, name: str, hook: Webhook) -> bytes:
        try:
            return hook.secret.reveal(self._env).encode()
        except ConfigError as error:
            log.error("the webhook %s has no secret: %s", name, error.message)
            raise signature_refused() from error

    def _taken(self, tx: Tx, name: str, hook: Webhook, call: Call, text: str) -> Received:
        keys = [f"{name}:sig:{call.proof}"]
        keys += [] if call.delivery_id is None else [f"{name}:id:{call.delivery_id}"]
        known = tx.conn.execute(sa.select(table.c.turn_id).where(table.c.key.in_(keys))).scalar()
        if known is not None:
            return Received(known, created=False)
        _check_pace(tx, name, hook.per_minute)
        accepted = self._accept(tx, self._ask(tx, name, hook, call, text))
        rows = [{"key": key, "name": name, "turn_id": accepted.run_id, "received_at": tx.now} for key in keys]
        tx.conn.execute(sa.insert(table), rows)
        _prune(tx)
        return Received(accepted.run_id, accepted.created)

    def _ask(self, tx: Tx, name: str, hook: Webhook, call: Call, text: str) -> Ask:
        agent_id = hook.agent or self._parts.config().default_agent_id
        own = f"agent:{agent_id}:{TRIGGER}:{name}"
        key = own if hook.session == "isolated" else session_key(hook.session, agent_id)
        source = {"channel": "webhook", "hook": name}
        source |= {} if call.delivery_id is None else {"deliveryId": call.delivery_id}
        to = last_surface(tx, hook.deliver, key, agent_id, self._parts.heard_at)
        return Ask(
            text=text or "(an empty body)",
            session_key=key,
            agent_id=agent_id,
            model=hook.model,
            timeout_seconds=hook.timeout_seconds,
            sender=f"{TRIGGER}:{name}",
            sender_label=name,
            owner=hook.owner,
            deliver=to,
            heard=None if key != own or to is None else to.heard,
            trigger=TRIGGER,
            trust=Trust.OUTSIDE,
            mode="queue",
            source=source,
            key=f"{TRIGGER}:{name}:{call.proof}",
            commands=False,
        )


def instructions(turn_key: str, hooks: HooksConfig) -> tuple[Text, ...]:
    """What the operator says of a webhook's call, for the turn that is run on it."""
    _, _, rest = turn_key.partition(":")
    name = rest.partition(":")[0]
    hook = hooks.webhooks.get(name)
    wanted = "Judge what it means for your work." if hook is None or not hook.prompt else hook.prompt
    told = f"The webhook {name!r} was called; the message is what it sent, data from outside."
    said = f"{told}\nWhat to do: {wanted}"
    return (Text("hook", said, source=f"hooks/{name}", audience=FOR_ANYONE),)


def _event(headers: Mapping[str, str]) -> str:
    event = headers.get("x-github-event") or headers.get("x-holdfast-event")
    return f"Event: {event[:100]}\n" if event else ""


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body) if body.strip() else None
    except (ValueError, RecursionError) as error:
        raise InvalidInput("the body is not valid JSON", code="malformed_json") from error


def _check_pace(tx: Tx, name: str, most: int) -> None:
    recent = sa.select(table.c.turn_id).where(table.c.name == name, table.c.received_at > tx.now - _MINUTE)
    calls = sa.select(sa.func.count()).select_from(recent.distinct().limit(most).subquery())
    if (tx.conn.execute(calls).scalar() or 0) >= most:
        raise Busy(f"this webhook takes {most} calls a minute", code="hook_busy", hint="Call again later.")


def _prune(tx: Tx) -> None:
    old = sa.select(table.c.key).where(table.c.received_at < tx.now - KEPT_MS).limit(_PRUNED)
    tx.conn.execute(sa.delete(table).where(table.c.key.in_(old)))
