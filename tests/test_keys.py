from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidInput
from holdfast.ids import AgentId
from holdfast.keys import (
    MAX_KEY_LENGTH,
    AgentKey,
    BoardTaskKey,
    BoardTopicKey,
    ChannelBucketKey,
    ChannelKey,
    ConversationKey,
    DirectKey,
    GroupKey,
    MainKey,
    ParsedKey,
    SubagentKey,
    board_key_of,
    canonical_agent_id,
    canonical_key,
    effective_key,
    parse_key,
)

MAIN = AgentId("main")

KNOWN = [
    ("agent:main:main", MainKey(MAIN)),
    ("agent:main:main:thread:17", MainKey(MAIN, "17")),
    ("agent:main:subagent:0198-ab", SubagentKey(MAIN, "0198-ab")),
    ("agent:main:subagent:a:subagent:b", SubagentKey(MAIN, "a:subagent:b")),
    ("agent:main:telegram:dm:12345", DirectKey(MAIN, "telegram", "12345")),
    ("agent:main:slack:direct:U1", DirectKey(MAIN, "slack", "U1", word="direct")),
    ("agent:main:dm:alice", DirectKey(MAIN, None, "alice")),
    ("agent:main:slack:work:dm:U1", DirectKey(MAIN, "slack", "U1", account="work")),
    ("agent:main:whatsapp:group:12-34@g.us", GroupKey(MAIN, "whatsapp", "12-34@g.us")),
    ("agent:main:discord:channel:42", ChannelKey(MAIN, "discord", "42")),
    ("agent:main:discord:channel:42:thread:7", ChannelKey(MAIN, "discord", "42", "7")),
    ("agent:main:msteams:channel:19:x@thread.v2", ChannelKey(MAIN, "msteams", "19:x@thread.v2")),
    ("agent:main:cron:job-1:run:0198", AgentKey(MAIN, "cron:job-1:run:0198")),
    ("clawboard:topic:topic-1", BoardTopicKey("topic-1")),
    ("clawboard:task:topic-1:task-2", BoardTaskKey("topic-1", "task-2")),
    ("channel:discord", ChannelBucketKey("discord")),
    ("channel:discord-123|thread:9", ChannelBucketKey("discord-123", "9")),
    ("!room:matrix.org", ConversationKey("!room:matrix.org")),
    ("telegram:12345|thread:9", ConversationKey("telegram:12345", "9")),
]


@pytest.mark.parametrize(("text", "parsed"), KNOWN)
def test_every_form_is_read_and_built_back(text: str, parsed: ParsedKey) -> None:
    assert parse_key(text) == parsed
    assert str(parsed) == text
    assert parsed.key == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        " agent:main:main",
        "agent:main:main\n",
        "agent:main:\x00",
        "agent:",
        "agent:main",
        "agent::main",
        "agent:main:",
        "agent:ma in:main",
        "agent:-x:main",
        "agent:\N{KELVIN SIGN}:main",
        f"agent:{'a' * 65}:main",
        "agent:main:discord:channel:",
        "agent:main:main:thread:",
        "clawboard:topic:",
        "clawboard:topic:a:b",
        "clawboard:note:a",
        "channel:",
        "|thread:5",
        "conv|thread:",
        "lone \ud800 surrogate",
        "x" * (MAX_KEY_LENGTH + 1),
    ],
)
def test_junk_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_key(text)
    assert refused.value.hint


def test_the_longest_key_is_still_read() -> None:
    assert str(parse_key("x" * MAX_KEY_LENGTH)) == "x" * MAX_KEY_LENGTH


def test_the_agent_id_is_lower_cased_and_nothing_else() -> None:
    assert canonical_key("agent:Main:slack:dm:U0ABC") == "agent:main:slack:dm:U0ABC"
    assert canonical_agent_id("Work_2") == "work_2"


@pytest.mark.parametrize(
    "build",
    [
        lambda: MainKey(AgentId("Main")),
        lambda: AgentKey(MAIN, "main"),
        lambda: AgentKey(MAIN, "discord:group:1"),
        lambda: ConversationKey("agent:main:main"),
        lambda: ConversationKey("a|thread:b"),
        lambda: DirectKey(MAIN, "telegram", "x:thread:y"),
        lambda: DirectKey(MAIN, "telegram", "x:thread", thread="y"),
        lambda: GroupKey(MAIN, "a:b", "1"),
        lambda: BoardTopicKey("a:b"),
        lambda: SubagentKey(MAIN, ""),
    ],
)
def test_a_key_that_would_read_back_as_another_cannot_be_built(build: object) -> None:
    with pytest.raises(InvalidInput):
        build()  # type: ignore[operator]


def test_a_key_says_what_kind_of_chat_it_is() -> None:
    room = parse_key("agent:work:discord:channel:42:thread:7")
    assert (room.agent_id, room.channel, room.chat_type, room.thread) == (
        "work",
        "discord",
        "room",
        "7",
    )
    assert parse_key("agent:main:main").chat_type == "direct"
    assert parse_key("agent:main:telegram:dm:1").chat_type == "direct"
    assert parse_key("agent:main:telegram:group:1").chat_type == "group"
    child = parse_key("agent:main:subagent:1")
    assert child.is_subagent
    assert child.chat_type is None
    board = parse_key("clawboard:task:a:b")
    assert board.is_board
    assert board.agent_id is None
    assert not parse_key("agent:main:main").is_board


segments = st.text(
    st.characters(blacklist_categories=("Z", "C"), blacklist_characters=":|"),
    min_size=1,
    max_size=12,
)
opaque = st.lists(segments, min_size=1, max_size=3).map(":".join)
agents = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,8}", fullmatch=True).map(AgentId)
threads = st.none() | opaque


def _built(kind: type[ParsedKey], *fields: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    def build(values: tuple[object, ...]) -> object:
        try:
            return kind(*values)  # type: ignore[arg-type]
        except InvalidInput:
            return None

    return st.tuples(*fields).map(build).filter(lambda key: key is not None)


keys = st.one_of(
    _built(MainKey, agents, threads),
    _built(SubagentKey, agents, opaque, threads),
    _built(
        DirectKey,
        agents,
        segments,
        opaque,
        st.none() | segments,
        st.sampled_from(["dm", "direct"]),
        threads,
    ),
    _built(GroupKey, agents, segments, opaque, threads),
    _built(ChannelKey, agents, segments, opaque, threads),
    _built(AgentKey, agents, opaque, threads),
    _built(BoardTopicKey, segments),
    _built(BoardTaskKey, segments, segments),
    _built(ChannelBucketKey, opaque, threads),
    _built(ConversationKey, opaque, threads),
)


@given(keys)
def test_a_built_key_reads_back_as_itself(key: object) -> None:
    assert parse_key(str(key)) == key


WORDS = "agent main clawboard topic task channel dm direct group subagent thread |thread cron a B @"
words = st.sampled_from([*WORDS.split(), "", "x y", "\n"])


@given(st.text(max_size=40) | st.lists(words, max_size=9).map(":".join))
def test_any_text_is_refused_or_round_trips(text: str) -> None:
    try:
        parsed = parse_key(text)
    except InvalidInput:
        return
    built = str(parsed)
    assert parse_key(built) == parsed
    if parsed.agent_id is None:
        assert built == text
    else:
        _, agent, rest = text.split(":", 2)
        assert built == f"agent:{agent.lower()}:{rest}"


@given(st.text(max_size=80))
def test_an_agent_id_is_refused_or_stays_as_it_is(text: str) -> None:
    try:
        found = canonical_agent_id(text)
    except InvalidInput:
        return
    assert canonical_agent_id(found) == found


BOARD = "clawboard:task:t1:k1"


@pytest.mark.parametrize(
    "given_keys",
    [
        {"board_key": BOARD, "conversation_id": "discord:1"},
        {"session_key": BOARD, "conversation_id": "discord:1", "thread_id": "5"},
        {"session_key": "agent:main:main", "conversation_id": BOARD, "thread_id": "5"},
        {"session_key": f"agent:main:{BOARD}", "conversation_id": "discord:1"},
        {"conversation_id": f"{BOARD}|thread:9", "channel_id": "webchat"},
        {"session_key": f"agent:main:{BOARD}:thread:9"},
    ],
)
def test_a_board_chat_wins_wherever_its_key_arrives(given_keys: dict[str, str]) -> None:
    assert effective_key(**given_keys) == BOARD


def test_without_a_board_the_conversation_comes_before_the_session_and_the_channel() -> None:
    every = {"session_key": "agent:main:main", "conversation_id": "c1", "channel_id": "discord"}
    assert effective_key(**every) == "c1"
    assert effective_key(**every, thread_id="9") == "c1|thread:9"
    assert effective_key(session_key="agent:Main:main", channel_id="discord") == "agent:main:main"
    assert effective_key(channel_id="discord") == "channel:discord"


def test_a_thread_is_added_once_and_in_the_form_of_the_key() -> None:
    assert effective_key(conversation_id="c1|thread:9", thread_id="9") == "c1|thread:9"
    assert effective_key(conversation_id="channel:1", thread_id="9") == "channel:1|thread:9"
    room = "agent:main:discord:channel:42"
    assert effective_key(conversation_id=room, thread_id="9") == f"{room}:thread:9"


def test_nothing_to_go_by_is_an_error_that_says_so() -> None:
    with pytest.raises(InvalidInput, match="which conversation"):
        effective_key(thread_id="9")
    with pytest.raises(InvalidInput, match="no board chat"):
        effective_key(board_key="agent:main:main", conversation_id="c1")


def test_only_board_keys_name_a_board() -> None:
    assert board_key_of("agent:main:main") is None
    assert board_key_of(None) is None
    assert board_key_of("agent:main:clawboard:topic:t1") == BoardTopicKey("t1")
    with pytest.raises(InvalidInput):
        board_key_of("clawboard:topic:")


def test_a_room_that_its_provider_names_is_the_agents_session_there() -> None:
    room = "agent:main:discord:channel:4242"
    at = {"provider": "discord", "agent_id": "main"}
    assert effective_key(conversation_id="channel:4242", **at) == room
    assert effective_key(session_key="channel:4242", **at) == effective_key(session_key=room, **at) == room
    assert effective_key(conversation_id="discord:channel:4242", thread_id="9", **at) == f"{room}:thread:9"
    assert effective_key(conversation_id="group:-100", provider="telegram", agent_id="main") == (
        "agent:main:telegram:group:-100"
    )
    assert effective_key(channel_id="discord", **at) == "channel:discord"
    assert effective_key(conversation_id="channel:4242") == "channel:4242"
