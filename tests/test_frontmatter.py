"""Frontmatter: YAML of strangers, read as the text that was written, within bounds, refused with a line."""

from __future__ import annotations

import contextlib
import json
import string

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from holdfast.frontmatter import MAX_VALUES, BadFrontmatter, Frontmatter, read_frontmatter


def read(head: str) -> Frontmatter:
    return read_frontmatter(f"---\n{head}\n---\nBody.\n")


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("a: 'it''s'\nb: \"x\\ny\"", {"a": "it's", "b": "x\ny"}),
        ("a: one\n  two", {"a": "one two"}),
        ("a: |\n  one\n    two\nb: x", {"a": "one\n  two\n", "b": "x"}),
        ("a: >-\n  one\n  two\n", {"a": "one two"}),
        ("a:\n  - x\n  - 'y'\nb: z", {"a": ["x", "y"], "b": "z"}),
        ("a:\n- x\n- y", {"a": ["x", "y"]}),
        ("a: [x, 'y, z', {b: c}]", {"a": ["x", "y, z", {"b": "c"}]}),
        (
            "a:\n  - kind: brew\n    bins: [jq]\n  - kind: apt",
            {"a": [{"kind": "brew", "bins": ["jq"]}, {"kind": "apt"}]},
        ),
        ("a:\n  b:\n    c: d", {"a": {"b": {"c": "d"}}}),
        ("a:\n  {\n    'b': [1, 2,],\n  }\nc: d", {"a": {"b": ["1", "2"]}, "c": "d"}),
        ('a: {"b":{"c":["https:\\/\\/x","\\ud83e\\udd9e"]}}', {"a": {"b": {"c": ["https://x", "🦞"]}}}),
        ("'odd key': 1\n\"b\": 2", {"odd key": "1", "b": "2"}),
        ("# note\na:\n", {"a": None}),
        ("", {}),
    ],
)
def test_yaml_is_read(head: str, expected: dict[str, object]) -> None:
    assert read(head).values == expected


@pytest.mark.parametrize(
    "text",
    [
        "no",
        "Yes",
        "on",
        "OFF",
        "true",
        "1.10",
        "012",
        "0x1F",
        "1e3",
        "2026-01-31",
        "12:30:45",
        "=",
        ".inf",
        "1_000",
    ],
)
def test_a_value_stays_the_text_that_was_written(text: str) -> None:
    assert read(f"a: {text}\nb: [{text}]").values == {"a": text, "b": [text]}


@pytest.mark.parametrize("text", ["", "~", "null", "NULL", "# a note"])
def test_only_null_is_nothing(text: str) -> None:
    assert read(f"a: {text}").values == {"a": None}
    assert read("a: 'null'").values == {"a": "null"}


@pytest.mark.parametrize(
    "text",
    [
        "---\na: b\n---\nBody.\n",
        "--- \t\na: b\n---  \nBody.",
        "\ufeff---\na: b\n---\nBody.\n",
        "---\r\na: b\r\n---\r\n\r\nBody.\r\n",
        "\n\n---\na: b\n...\nBody.",
    ],
)
def test_fences_may_have_blanks_a_mark_of_order_or_other_line_ends(text: str) -> None:
    found = read_frontmatter(text)
    assert (found.values, found.body) == ({"a": "b"}, "Body.")


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", 1, "no frontmatter"),
        ("# Title\n---\na: b\n---\n", 1, "no frontmatter"),
        ("\n---\na: b\n", 2, "not closed"),
        ("---\na: b\nb: c\na: d\n---\n", 4, "a is there twice"),
        ("---\na: b\nb:\n  c: 1\n  c: 2\n---\n", 5, "c is there twice"),
        ("---\na: b\n\nmetadata: {broken\n---\n", 4, "not YAML"),
        ("---\na: b\njust words\n---\n", 3, "not YAML"),
        ("---\n- a\n- b\n---\n", 2, "not a map"),
        ("---\na: b\nb: !!python/object/apply:os.system ['true']\n---\n", 3, "the tag"),
        ("---\na: b\nc: !env HOME\n---\n", 3, "the tag !env"),
        ("---\na: b\n? [x, y]\n: z\n---\n", 3, "a key that is not plain text"),
        ("---\na: b\nb: *nowhere\n---\n", 3, "stands for nothing"),
        ("---\na: &a [*a]\n---\n", 2, "stands for nothing"),
        ("---\na: b\nb: \x07\n---\n", 3, "a character that YAML does not take"),
        ("---\na: " + "[" * 20_000 + "\n---\n", 2, "nested deeper"),
        ("---\na: b\nb: [" + "1," * 5_000 + "]\n---\n", 3, f"more than {MAX_VALUES} values"),
        ("---\na: " + "y" * 40_000 + "\n---\n", 2, "longer than"),
        ('---\na: "\\UFFFFFFFF"\n---\n', 2, "not YAML"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(text: str, line: int, reason: str) -> None:
    with pytest.raises(BadFrontmatter, match=reason) as caught:
        read_frontmatter(text)
    assert caught.value.line == line
    assert caught.value.message.startswith(f"line {line}: ")


def test_an_alias_stands_for_its_anchor_and_a_bomb_of_them_is_refused() -> None:
    assert read("a: &x [1, 2]\nb: *x").values == {"a": ["1", "2"], "b": ["1", "2"]}
    steps = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    with pytest.raises(BadFrontmatter, match="more than"):
        read("\n".join(["a0: &a0 [x, x, x]", *steps]))


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("description: Use when: (1) it's asked", "Use when: (1) it's asked"),
        ("argument-hint: [date] [reason]", "[date] [reason]"),
        ("description: , and more", ", and more"),
    ],
)
def test_a_one_line_value_that_wants_quotes_is_text_and_told(line: str, value: str) -> None:
    found = read(f"name: x\n{line}\nmetadata:\n  openclaw: {{requires: {{bins: [gh]}}}}")
    assert found.values[line.partition(":")[0]] == value
    assert found.values["metadata"] == {"openclaw": {"requires": {"bins": ["gh"]}}}
    assert found.notes == (
        f"line 3: the value of {line.partition(':')[0]} is not YAML and was read as text; quote it",
    )


@given(st.text(alphabet=st.sampled_from("ab:-#|>{}[]\"' \n\t,\\&*!%?~"), max_size=80) | st.text(max_size=80))
def test_any_head_is_read_or_refused(head: str) -> None:
    with contextlib.suppress(BadFrontmatter):
        read(head)


_texts = st.text(alphabet=string.printable + "äß漢🦞", max_size=20)


@given(
    st.dictionaries(
        st.text(alphabet=string.ascii_letters, min_size=1, max_size=8),
        st.recursive(
            _texts,
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
            max_leaves=8,
        ),
        max_size=4,
    )
)
def test_what_a_yaml_library_or_json_writes_is_read_as_it_was(value: dict[str, object]) -> None:
    assert read(yaml.safe_dump(value, allow_unicode=True).rstrip("\n")).values == value
    as_json = "\n".join(f"{json.dumps(key)}: {json.dumps(inner)}" for key, inner in value.items())
    assert read(as_json).values == value
