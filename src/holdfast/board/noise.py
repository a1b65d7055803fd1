"""What is no part of anyone's request: heartbeats, cron, scaffolds, tool traces, commands. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from holdfast.board.words import asked_terms, each_term, is_filler, telling
from holdfast.errors import InvalidInput
from holdfast.keys import AgentKey, ParsedKey, parse_key
from holdfast.memory.question import is_greeting

CONTROL_CHANNELS: Final = frozenset(("heartbeat", "control-plane", "maintenance", "backup", "watchdog"))
CRON_CHANNELS: Final = frozenset(("cron-event", "cron"))
SCAFFOLD: Final = "[Subagent Context]"
CLASSIFIER_MARK: Final = "[HOLDFAST_CLASSIFIER]"

_SILENT = re.compile(r"[*_`\"'\s]*(?:HEARTBEAT_OK|NO_REPLY)[*_`\"'.!\s]*")
_HEARTBEAT = re.compile(
    r"(?:Read HEARTBEAT\.md (?:if it exists|and)\b|\[heartbeat\]|Heartbeat (?:poll|wake):)", re.I
)
_INTERNAL = re.compile(
    r"""Internal\ event:\ (?:work\ that\ this\ session\ delegated\ has\ ended\.
        | nothing\ was\ heard\ of\ you\ for\ a\ while\.)
      | \[continuation:(?:wake|delegate-return|delegate-spawn-interrupted)\]\ \S
      | \[system:(?:continuation-note|continuation-warning|context-pressure|post-compaction|evacuation
        |compaction-failed)\]\ \S""",
    re.VERBOSE,
)
_TOOL_ROUND: Final = frozenset(("tool", "toolResult", "assistant"))
"""Whose rows of type action are rounds of tool calls: a model's words are of type conversation."""
_RETURNS: Final = frozenset(("subagents", "continuation"))
"""What tells in an entry's source that it is what delegated work brought back."""
_CRON = re.compile(r"\[cron:[^\]\n]{1,200}\]", re.I)
_TRACE = re.compile(r"\s*Tool (?:call|result|error)\b[:\s]*(?P<tool>[\w.-]{0,64})", re.I)
_MEMORY_TOOLS = re.compile(r"(?:memory|clawboard|context)_\w{1,40}", re.I)
_COMMAND = re.compile(r"/(?P<name>[a-z][a-z0-9_-]{0,31})(?P<rest>[ :][^\n]{0,200})?", re.I)
_PAYLOAD = re.compile(r'"candidate(?:Topics|Tasks)"\s*:')
_CUES = re.compile(
    r"""\b(?: new\ (?:topic|thread|subject|question)
      | (?:different|another|separate|unrelated)\ (?:topic|question|subject|matter|thing|issue)
      | unrelated(?=[:,]|\ to\ (?:this|that)) | on\ another\ note
      | (?:switch|chang)(?:e|ing)\ (?:topics?|subjects?|gears) | something\ (?:else|different|new)
      | by\ the\ way | btw | neues\ thema | (?:andere|neue)\ frage | übrigens | etwas\ anderes )\b""",
    re.VERBOSE | re.IGNORECASE,
)
_REQUEST = re.compile(
    r"""\W*(?:(?:hi|hey|hello|ok|okay|also|now|then|next|please|bitte)\W+){0,3}
    (?: (?:can|could|would|will)\ (?:you|we|someone)\b | help\ me\b | (?:i|we)\ (?:need|want|would\ like)\b
      | i'd\ like\b | let's\b | remind\ me\b | what(?:'s|\ is|\ are)\b | how\ (?:do|can|to|much|many)\b
      | kannst\ du\b | könntest\ du\b | ich\ (?:brauche|möchte|will)\b | wie\ (?:kann|viel)\b
      | (?:add|analy[sz]e|arrange|book|build|buy|calculate|call|cancel|check|clean|compare|configure|convert
        |create|debug|delete|deploy|design|draft|edit|email|explain|find|fix|generate|implement|install
        |investigate|list|make|migrate|order|organi[sz]e|pay|plan|prepare|print|read|refactor|remove|rename
        |replace|research|review|rewrite|schedule|search|send|set\ up|show|sort|start|summari[sz]e|test
        |translate|update|upgrade|upload|write)\ (?!it\b|this\b|that\b|them\b) )""",
    re.VERBOSE | re.IGNORECASE,
)
_ASKED_FOR = re.compile(
    r"""\W*(?:(?:hi|hey|hello|hallo|ok|okay|also|now|then|next|und|and|please|bitte)\W+){0,3}
    (?: (?:can|could|would|will)\ you\ (?:please\ )? | help\ me\ (?:to\ )? | let's\ | remind\ me\ to\ )?
    (?P<verb> arrange|book|buy|calculate|call|cancel|check|compare|convert|create|delete|draft|edit|email
      |explain|find|fix|generate|list|move|order|organi[sz]e|pay|plan|prepare|print|remove|rename|replace|reserve
      |schedule|search|send|show|sort|start|summari[sz]e|translate|update|upload|write
      |änder|bestell|buch|druck|erinner|erklär|erstell|find|kauf|lösch|notier|plan|prüf|reservier|ruf|schick
      |schreib|stornier|such|übersetz|vergleich|verschieb )e?\b""",
    re.VERBOSE | re.IGNORECASE,
)
_ASKED_LAST = re.compile(
    r"\W*(?:bitte\W+)?(?:kannst|könntest|würdest)\ du\b[^.?!\n]{1,150}?\b(?P<verb>\w{3,}en)\W*(?:[.?!\n]|$)",
    re.IGNORECASE,
)
_POINTS_BACK = re.compile(
    r"\b(?:it|its|this|that|these|those|them|same|again|instead|above|also|too|es|das|dies[ems]?|dazu|davon)\b",
    re.IGNORECASE,
)
_GOES_ON = re.compile(
    r"""\W*(?: and | und | but | aber | then | dann | also | yes | yeah | yep | ja | no | nope | nein | true
      | right | stimmt | ok(?:ay)? | gut | good | it(?:'s)? | they | them | he | she | er | sie | es | if
      | wenn | because | weil | instead | both | beide | doch | genau | exactly | dafür | davon | dazu | daran
      | damit )\b""",
    re.VERBOSE | re.IGNORECASE,
)
_AGREES = re.compile(
    r"""\W*(?: yes | yeah | yep | ja | no | nope | nah | nein | true | right | exactly | genau | stimmt | klar
      | leider )\b""",
    re.VERBOSE | re.IGNORECASE,
)
_GOES_BACK = re.compile(
    r"""\W*(?:(?:ok(?:ay)?|and|und|so|now|jetzt|also|aber|but)\W+){0,2}
    (?: (?:going\ |coming\ )?back\ to | as\ for | regarding | once\ more\ about | again\ about
      | zurück\ zu[mr]? | noch\ ?(?:ein)?mal\ (?:zu[mr]?|wegen) | zum\ thema
      | was\ (?:den|die|das)\b[^.?!\n]{1,60}\bangeht )\b""",
    re.VERBOSE | re.IGNORECASE,
)
_COMMANDS = """
abort activation agents allowlist approve bash commands compact config context debug deny elevated export
help kill model models new ping queue reasoning reset restart resume sessions skill status steer stop
subagents think thinking tokens tts undo usage verbose version whoami
"""
COMMANDS: Final = frozenset(_COMMANDS.split())
_MACHINE_BEGINS: Final = frozenset(" \t\r\n[{*_`\"'HhRrNn")
_MACHINE_CHANNELS: Final = CONTROL_CHANNELS | CRON_CHANNELS
_CUE_REACH: Final = 200
_OWN_WORDS: Final = 3
_KEPT: Final = 256
"""What is asked of an exchange is asked again while it is sorted."""


def key_of(text: str | None) -> ParsedKey | None:
    """The session key, or None when it is none that can be read: then it says nothing."""
    try:
        return parse_key(text) if text else None
    except InvalidInput:
        return None


def is_plain(channel: str, session_key: str | None, text: str) -> bool:
    """Whether a glance tells that a text is neither cron's, control's, a scaffold nor a payload: most are."""
    return (
        text[:1] not in _MACHINE_BEGINS
        and channel not in _MACHINE_CHANNELS
        and "cron" not in (session_key or "")
        and not text.startswith("Internal event:")
    )


def is_of_a_person(source: Mapping[str, Any] | None) -> bool:
    """Whether a channel took it from somebody: whatever it looks like, it is that person's words. What the
    runtime says in a user's place has no sender."""
    told = source or {}
    return bool(told.get("sender")) and told.get("trust") not in ("operator", "other_session")


def is_of_the_runtime(source: Mapping[str, Any] | None, role: str | None, text: str) -> bool:
    """Wakes, nudges and returns: what the runtime puts in a user's place so that a turn begins."""
    if role != "user":
        return False
    told = source or {}
    trust = told.get("trust")
    returns = trust == "other_session" and not _RETURNS.isdisjoint(told)
    if trust == "operator" or returns:
        return True
    return _INTERNAL.match(text) is not None and not is_of_a_person(source)


def is_cron(channel: str, key: ParsedKey | None, text: str) -> bool:
    from_job = isinstance(key, AgentKey) and key.rest.split(":")[0] == "cron"
    return channel in CRON_CHANNELS or from_job or _CRON.match(text) is not None


def is_control_plane(channel: str, text: str) -> bool:
    """Heartbeats and upkeep: by their channel, or by text that is such a prompt or answer as a whole."""
    return channel in CONTROL_CHANNELS or bool(_SILENT.fullmatch(text[:64]) or _HEARTBEAT.match(text))


def is_scaffold(text: str) -> bool:
    return text.startswith(SCAFFOLD)


def is_classifier_payload(text: str) -> bool:
    """What a classifier sends to its model, or a payload of that shape."""
    return text.startswith(CLASSIFIER_MARK) or (text[:1] == "{" and _PAYLOAD.search(text[:4000]) is not None)


def tool_of(text: str, source: Mapping[str, Any], role: str | None) -> str | None:
    """The tool that an action is a trace of, "" when it is not named; None when it is no trace."""
    named = source.get("toolName") or source.get("tool")
    if isinstance(named, str):
        return named
    match = _TRACE.match(text)
    if match is not None:
        return match["tool"]
    return "" if role in _TOOL_ROUND else None


def is_memory_tool(tool: str) -> bool:
    return _MEMORY_TOOLS.fullmatch(tool) is not None


def is_command(text: str) -> bool:
    """A slash command to the host. A path or a sentence that begins with a slash is none."""
    match = _COMMAND.fullmatch(text.strip())
    return match is not None and (match["rest"] is None or match["name"].lower() in COMMANDS)


@lru_cache(maxsize=_KEPT)
def is_low_signal(text: str) -> bool:
    """Whether nothing in it says what it is about: "yes", "ok do it", "how are you?", a thumbs-up."""
    return is_greeting(text) or all(is_filler(term) or term in _GOING_ON for term in each_term(text))


@lru_cache(maxsize=_KEPT)
def is_fresh_request(text: str) -> bool:
    """A request that stands on its own: it names what it is about and points back at nothing."""
    head = text[:_CUE_REACH]
    if _REQUEST.match(head) is None or _POINTS_BACK.search(head):
        return False
    return len(telling(text)) >= _OWN_WORDS


@lru_cache(maxsize=_KEPT)
def points_back(text: str) -> bool:
    """A request that is about what was said before: "Can you make it cheaper?"."""
    head = text[:_CUE_REACH]
    return _REQUEST.match(head) is not None and _POINTS_BACK.search(head) is not None


def asked_for(text: str) -> str | None:
    """The verb of a request: it says what is to be done ("Book a table …"), not what it is about."""
    head = text[:_CUE_REACH]
    found = _ASKED_FOR.match(head) or _ASKED_LAST.match(head)
    return None if found is None else found["verb"]


@lru_cache(maxsize=_KEPT)
def announces_new_thread(text: str) -> bool:
    return _CUES.search(text[:_CUE_REACH]) is not None


@lru_cache(maxsize=_KEPT)
def goes_on(text: str) -> bool:
    """Whether it begins as only what goes on with something does: "And …", "Then …", "They …"."""
    return _GOES_ON.match(text[:_CUE_REACH]) is not None


@lru_cache(maxsize=_KEPT)
def agrees(text: str) -> bool:
    """Whether it begins by saying yes or no to what was said before it."""
    return _AGREES.match(text[:_CUE_REACH]) is not None


@lru_cache(maxsize=_KEPT)
def announces_return(text: str) -> bool:
    """Whether it says that it goes back to something: "Back to …", "Noch mal zu …"."""
    return _GOES_BACK.match(text[:_CUE_REACH]) is not None


_GOING_ON: Final = asked_terms(
    """proceed continue resume again sure agreed approved confirm correct done finish ship merge retry
    redo repeat yup nope ack roger k sounds lgtm weiter mach bestätigt stimmt einverstanden fertig"""
)
