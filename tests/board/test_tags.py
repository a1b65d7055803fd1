from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.board.tags import (
    DEFAULT_SPACE,
    MAX_TAGS,
    clean_tags,
    membership,
    merge_tags,
    name_key,
    owner_of,
    slug,
    space_of_tag,
    spaces_of_tags,
)
from holdfast.errors import InvalidInput


@pytest.mark.parametrize(
    ("tag", "space"),
    [
        ("space:Beta", "space-beta"),
        ("SPACE: Beta Team ", "space-beta-team"),
        ("Beta", "space-beta"),
        ("R&D / ops", "space-r-d-ops"),
        ("Über", "space-über"),
        ("研究", "space-研究"),
        ("space:default", DEFAULT_SPACE),
        ("Global", DEFAULT_SPACE),
        ("all", DEFAULT_SPACE),
        ("All Spaces", DEFAULT_SPACE),
        ("space:all-spaces", DEFAULT_SPACE),
        ("system:classified", None),
        ("System:x", None),
        ("agent:main", None),
        ("space:", None),
        ("--", None),
        ("", None),
    ],
)
def test_a_tag_names_the_space_of_its_slug(tag: str, space: str | None) -> None:
    found = space_of_tag(tag)
    assert (None if found is None else found.space_id) == space


def test_membership_is_the_owner_and_all_that_tags_name() -> None:
    tags = ["space:Beta", "ops", "system:x", "BETA"]
    assert membership("space-alpha", tags) == {"space-alpha", "space-beta", "space-ops"}


def test_the_first_tag_that_names_a_space_owns_what_was_given_none() -> None:
    assert owner_of(None, ["system:x", "Ops", "space:Beta"]) == "space-ops"
    assert owner_of("space-given", ["Ops"]) == "space-given"
    assert owner_of(None, ["system:x"]) == DEFAULT_SPACE
    assert owner_of(None, [], fallback="space-old") == "space-old"


def test_tags_are_trimmed_and_told_apart_without_case() -> None:
    assert clean_tags(["  a  b ", "A B", "", "c"]) == ("a b", "c")
    assert merge_tags(["a"], []) == ("a",)
    assert merge_tags(["a", "b"], ["B", "c"]) == ("a", "b", "c")


def test_too_many_or_too_long_tags_are_refused() -> None:
    with pytest.raises(InvalidInput, match="at most 32 tags"):
        clean_tags([str(n) for n in range(MAX_TAGS + 1)])
    with pytest.raises(InvalidInput, match="at most 80 characters"):
        clean_tags(["x" * 81])


def test_one_name_has_one_key_however_it_is_spelt() -> None:
    assert name_key("  Deploy   Plan ") == name_key("deploy plan") == name_key("DEPLOY\tPLAN")
    assert name_key("Straße") == name_key("STRASSE")


@given(st.text(max_size=200))
def test_a_slug_is_stable_and_safe(text: str) -> None:
    made = slug(text)
    assert slug(made) == made
    assert len(made) <= 64
    assert all(c == "-" or c.isalnum() for c in made)
    assert not made.startswith("-")
    assert not made.endswith("-")


@given(st.lists(st.text(max_size=30), max_size=10), st.text(max_size=10))
def test_every_space_of_the_tags_is_in_the_membership_and_system_tags_add_none(
    tags: list[str], owner: str
) -> None:
    members = membership(owner, tags)
    assert owner in members
    assert {label.space_id for label in spaces_of_tags(tags)} | {owner} == members
    assert membership(owner, [*tags, "system:anything"]) == members
