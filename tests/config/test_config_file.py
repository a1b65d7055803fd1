"""Reading, watching and patching the file."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import PATIENCE
from holdfast.clock import ManualClock
from holdfast.config import (
    Config,
    ConfigStore,
    InvalidConfig,
    default_config_text,
    load_config,
    merge_patch,
    merge_text,
    parse_config,
)
from holdfast.config.source import parse_text
from holdfast.errors import InvalidInput

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)


def holds_null(value: Any) -> bool:
    if isinstance(value, dict):
        return any(item is None or holds_null(item) for item in value.values())
    return False


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.json"


def test_a_missing_file_is_all_defaults(path: Path) -> None:
    assert load_config(path) == Config()


@pytest.mark.parametrize("text", ["", "  \n", "{}", "// nothing\n{}", "\ufeff{}"])
def test_an_empty_file_is_all_defaults(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    assert load_config(path) == Config()


def test_comments_bare_keys_and_trailing_commas_are_read(path: Path) -> None:
    path.write_text("{ // here\n gateway: { port: 0x1F90, }, /* there */ }")
    assert load_config(path).gateway.port == 8080


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{a: 1,\n b: }", "line 2, column 5: unexpected"),
        ("{a: 1", "line 1, column 6: unexpected end of input"),
        ("{gateway: {port: 1, port: 2}}", "port: the key is given twice"),
        ('{"gateway": {"port": 1, "port": 2}}', "port: the key is given twice"),
        ("[]", "expected an object"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_file_that_cannot_be_read_says_where(path: Path, text: str, said: str) -> None:
    path.write_text(text)
    with pytest.raises(InvalidConfig) as caught:
        load_config(path)
    assert str(caught.value).startswith(f"{path}: {said}")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_text_or_too_large_or_a_folder_is_refused(path: Path) -> None:
    path.write_bytes(b"{\xff}")
    with pytest.raises(InvalidConfig, match="UTF-8"):
        load_config(path)
    path.write_bytes(b" " * (1024**2 + 1))
    with pytest.raises(InvalidConfig, match="1 MiB"):
        load_config(path)
    with pytest.raises(InvalidConfig, match="cannot be read"):
        load_config(path.parent)


def test_the_file_for_a_new_home_is_all_defaults_until_uncommented() -> None:
    text = default_config_text()
    assert parse_config(text) == Config()
    shown = parse_config(text.replace("  // ", "  "))
    assert {agent.id for agent in shown.agents.list} == {"main", "work"}
    assert shown.agents.defaults.heartbeat == Config().agents.defaults.heartbeat


def test_a_changed_file_is_taken_in_and_subscribers_hear_of_it(path: Path) -> None:
    clock = ManualClock()
    store = ConfigStore(path, clock)
    heard: list[Config] = []
    stop = store.subscribe(heard.append)
    clock.advance(seconds=1)
    path.write_text("{gateway: {port: 1}}")
    assert store.reload()
    assert not store.reload()
    assert [config.gateway.port for config in heard] == [1]
    assert store.loaded_at == clock.now()
    stop()
    path.write_text("{gateway: {port: 2}}")
    assert store.reload()
    assert len(heard) == 1


def test_a_subscriber_that_fails_keeps_no_one_from_the_new_config(path: Path) -> None:
    store = ConfigStore(path)
    heard: list[Config] = []

    def fail(_: Config) -> None:
        raise RuntimeError("broken")

    store.subscribe(fail)
    store.subscribe(heard.append)
    store.patch({"gateway": {"port": 9}})
    assert heard == [store.current]


def test_a_change_of_comments_alone_is_no_change(path: Path) -> None:
    store = ConfigStore(path)
    path.write_text("{ /* a note */ }")
    assert not store.reload()


def test_a_wrong_file_keeps_the_last_good_config(path: Path) -> None:
    path.write_text("{gateway: {port: 1}}")
    store = ConfigStore(path)
    path.write_text("{gateway: {port: 'x'}}")
    assert not store.reload()
    assert store.current.gateway.port == 1
    assert store.last_error is not None
    assert "gateway.port" in str(store.last_error)
    path.write_text("{gateway: {port: 1}}")
    store.reload()
    assert store.last_error is None


def test_a_file_that_goes_away_or_is_emptied_keeps_the_last_good_config(path: Path) -> None:
    """Many programs empty a file before they write it, and it may be looked at just then."""
    path.write_text("{gateway: {port: 1}}")
    store = ConfigStore(path)
    path.unlink()
    assert not store.reload()
    assert (store.current.gateway.port, store.last_error is None) == (1, False)
    path.write_text("\n")
    assert not store.reload()
    assert (store.current.gateway.port, store.last_error is None) == (1, False)
    path.write_text("{}")
    assert store.reload()
    assert (store.current, store.last_error) == (Config(), None)


def test_a_file_that_is_wrong_at_the_start_is_an_error(path: Path) -> None:
    path.write_text("{nope")
    with pytest.raises(InvalidConfig):
        ConfigStore(path)


def test_a_patch_is_written_to_the_file_and_in_force_at_once(path: Path) -> None:
    path.write_text('{"gateway": {"port": 1, "host": "::1"}, "store": {"poolSize": 2}}')
    store = ConfigStore(path)
    heard: list[Config] = []
    store.subscribe(heard.append)
    config = store.patch({"gateway": {"port": 9, "host": None}, "store": None})
    assert config is store.current
    assert (config.gateway.port, config.gateway.host, config.store.pool_size) == (9, "127.0.0.1", 5)
    assert load_config(path) == config
    assert heard == [config]


def test_a_patch_that_would_be_wrong_leaves_the_file_alone(path: Path) -> None:
    path.write_text("{gateway: {port: 1}} // mine")
    store = ConfigStore(path)
    with pytest.raises(InvalidConfig, match=r"gateway\.port"):
        store.patch({"gateway": {"port": "x"}})
    assert path.read_text() == "{gateway: {port: 1}} // mine"
    assert store.current.gateway.port == 1
    assert os.listdir(path.parent) == [path.name]


def test_a_patch_keeps_secrets_and_the_mode_and_the_commented_text(path: Path) -> None:
    before = '{gateway: {auth: {token: "hush"}}} // mine'
    path.write_text(before)
    path.chmod(0o640)
    store = ConfigStore(path)
    config = store.patch({"gateway": {"port": 9}})
    assert config.gateway.auth.token is not None
    assert config.gateway.auth.token.reveal({}) == "hush"
    assert path.stat().st_mode & 0o777 == 0o640
    backup = path.with_name("holdfast.json.bak")
    assert (backup.read_text(), backup.stat().st_mode & 0o777) == (before, 0o600)


def test_a_new_file_is_for_its_owner_alone(path: Path) -> None:
    ConfigStore(path).patch({"gateway": {"port": 9}})
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_patch_goes_through_a_link_to_the_real_file(path: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "real.json"
    real.parent.mkdir()
    real.write_text("{}")
    path.symlink_to(real)
    ConfigStore(path).patch({"gateway": {"port": 9}})
    assert path.is_symlink()
    assert load_config(real).gateway.port == 9


@pytest.mark.parametrize(
    "patch",
    [
        {"gateway": {"auth": {"token": "***"}}},
        {"store": {"url": "postgresql://u:***@h/d"}},
        {"models": {"providers": {"o": {"headers": {"A": "***"}}}}},
    ],
)
def test_a_masked_secret_is_not_written_back(path: Path, patch: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="masked"):
        ConfigStore(path).patch(patch)
    assert not path.exists()


def test_the_watcher_takes_in_a_file_that_an_editor_replaces(path: Path) -> None:
    path.write_text("{gateway: {port: 1}}")

    async def scenario() -> None:
        store = ConfigStore(path)
        changed, stop = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def announce(_: Config) -> None:
            loop.call_soon_threadsafe(changed.set)

        store.subscribe(announce)
        watching = asyncio.create_task(store.watch(stop))
        for port in (2, 3, 4):
            changed.clear()
            fresh = path.with_suffix(".new")
            fresh.write_text(f"{{gateway: {{port: {port}}}}}")
            os.replace(fresh, path)
            await asyncio.wait_for(changed.wait(), PATIENCE)
            assert store.current.gateway.port == port
        stop.set()
        await asyncio.wait_for(watching, PATIENCE)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_merge_is_as_rfc_7396_has_it(target: Any, patch: Any, result: Any) -> None:
    assert merge_patch(target, patch) == result


@given(VALUES, OBJECTS)
def test_a_patch_applied_twice_is_a_patch_applied_once(target: Any, patch: Any) -> None:
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once


@given(OBJECTS, OBJECTS)
def test_a_merge_touches_only_what_the_patch_names(target: Any, patch: Any) -> None:
    merged = merge_patch(target, patch)
    assert {k: v for k, v in merged.items() if k not in patch} == {
        k: v for k, v in target.items() if k not in patch
    }
    assert not {k for k, v in patch.items() if v is None} & merged.keys()


@given(OBJECTS)
def test_a_patch_without_nulls_replaces_nothing_in_an_empty_object(patch: Any) -> None:
    if not holds_null(patch):
        assert merge_patch({}, patch) == patch


COMMENTED = """\
/* Mine. */
{
  // who listens
  gateway: { port: 1, host: "::1" }, // here
  memory: {
    search: {
      paths: [
        { path: "/a", name: "a" }, // the first
        // the second is old
        { path: "/b", name: "b" }
      ],
    },
  },
  /* nothing below */
}
// the end
"""
REMARKS = ("/* Mine. */", "// who listens", "// here", "// the first", "// the second is old", "// the end")


def test_a_patch_keeps_comments_and_what_it_does_not_name_to_the_letter(path: Path) -> None:
    path.write_text(COMMENTED)
    paths = [{"path": "/a", "name": "a"}, {"path": "/b", "name": "b"}, {"path": "/c", "name": "c"}]
    ConfigStore(path).patch({"memory": {"search": {"paths": paths}}, "store": {"poolSize": 3}})
    expected = COMMENTED.replace(
        '{ path: "/b", name: "b" }\n', '{ path: "/b", name: "b" },\n        { path: "/c", name: "c" },\n'
    ).replace("  },\n  /* nothing", "  },\n  store: { poolSize: 3 },\n  /* nothing")
    assert path.read_text() == expected


@pytest.mark.parametrize(
    ("text", "patch", "result"),
    [
        ("{ a: 1 } // x", {"a": 2}, "{ a: 2 } // x"),
        ("{ a: 1 } // x", {"b": 2}, "{ a: 1, b: 2 } // x"),
        ("{ a: 1, b: 2 } // x", {"a": None}, "{  b: 2 } // x"),
        ("{ // x\n}", {"a": {"b": [1]}}, "{ // x\n  a: { b: [1] },\n}"),
        ("{} // x", {"a": 1}, "{\n  a: 1,\n} // x"),
        ("{\n  a: 1, // x\n}", {"a": None, "b": 2}, "{\n  b: 2, // x\n}"),
        ("{\n  a: 1 // x\n}", {"b": 2}, "{\n  a: 1, // x\n  b: 2,\n}"),
        ("{\n  a: 1, // x\n  b: 2,\n}", {"b": None}, "{\n  a: 1, // x\n}"),
        ("{'it\\'s': 1} // x", {"it's": 3}, "{'it\\'s': 3} // x"),
        ("{a: 1 // x\n, b: 2}", {"a": None}, "{ // x\n b: 2}"),
        ('{"a": [1, 2]} // x', {"a": [0, 1, 2], "b c": True}, '{"a": [0, 1, 2], "b c": true} // x'),
    ],
)
def test_a_patch_is_written_where_a_person_would_write_it(
    text: str, patch: dict[str, Any], result: str
) -> None:
    assert merge_text(text, patch) == result


@given(OBJECTS, OBJECTS, st.sampled_from(("", "\n")))
def test_a_patched_text_says_what_the_patched_data_says(data: Any, patch: Any, line: str) -> None:
    whole = json.dumps(data, indent=2 if line else None, ensure_ascii=False)
    text = f"// head\n{whole[:-1]}{line}/* tail */{line}}} // end"
    merged = merge_text(text, patch)
    assert parse_text(merged) == merge_patch(data, patch)
    assert all(remark in merged for remark in ("// head", "/* tail */", "// end"))
