from __future__ import annotations

from collections.abc import Sequence

from holdfast.context import ToolSpec
from holdfast.context.request import Remembered, tools_text


def tool(name: str) -> ToolSpec:
    return ToolSpec(name, "Looks.", {"type": "object"})


def test_what_is_made_of_the_same_objects_is_made_once_and_forgotten_in_the_end() -> None:
    made: list[tuple[str, ...]] = []

    def names(tools: Sequence[ToolSpec]) -> str:
        made.append(tuple(t.name for t in tools))
        return "+".join(made[-1])

    kept = Remembered(names, most=2)
    a, b = tool("a"), tool("b")
    assert [kept((a, b)), kept([a, b]), kept((b, a))] == ["a+b", "a+b", "b+a"]
    assert made == [("a", "b"), ("b", "a")]
    assert kept((tool("a"), b)) == "a+b"
    assert kept((a, b)) == "a+b"
    assert len(made) == 4


def test_equal_tools_give_equal_bytes_whichever_objects_they_are() -> None:
    assert tools_text([tool("a"), tool("b")]) == tools_text([tool("b"), tool("a")])
    assert tools_text(()) is None
