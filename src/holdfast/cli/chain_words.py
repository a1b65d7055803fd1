"""Chains in words and as trees, from what `GET /api/chains` and its kin answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import IO, Any, Final

from holdfast.cli.output import cell
from holdfast.clock import parse_iso

SHORT: Final = 8
_UNCUT: Final = 20_000
_WORTH_TELLING: Final = 0.00005
_SAID_ABOVE: Final = ("continuation", "delegate", "subagent", "subagent-return")
"""Turns that the runtime asked for: what they are about stands in what brought them about."""
_KINDS: Final = {"work": "elected turn", "post_compaction": "delegate after a compaction"}


def halted_line(halt: Mapping[str, Any]) -> str:
    since, reason = str(halt["since"])[:19].replace("T", " "), cell(halt["reason"])
    return f"EVERYTHING IS STOPPED since {since} UTC ({reason}). Release it: holdfast stop-all --release"


def chains_line(told: Mapping[str, Any]) -> str:
    """`2 live (main: chain 3/10, 1 election, next in 12 s)`."""
    if not told["live"]:
        return "none live"
    shown = [_in_short(chain, told["asOf"]) for chain in told["listed"]]
    more = told["live"] - len(shown)
    return f"{told['live']} live ({'; '.join([*shown, *([f'and {more} more'] if more > 0 else [])])})"


def _in_short(chain: Mapping[str, Any], now: str) -> str:
    said = [f"{chain['origin']['agentId'] or '-'}: chain {chain['steps']}/{chain['maxSteps']}"]
    said += [text for text in (lives(chain), next_due(chain["nextDueAt"], now)) if text]
    return ", ".join(said)


def lives(chain: Mapping[str, Any]) -> str:
    """`1 turn, 2 subagents`; empty if nothing lives."""
    found = [(count, sort) for sort, count in chain["live"].items() if count]
    return ", ".join(f"{count} {sort}{'' if count == 1 else 's'}" for count, sort in found)


def next_due(at: str | None, now: str) -> str:
    if at is None:
        return ""
    seconds = (parse_iso(at) - parse_iso(now)) // 1000
    if seconds <= 0:
        return "due now"
    if seconds < 120:
        return f"next in {seconds} s"
    return f"next in {seconds // 60} min" if seconds < 7_200 else f"next in {seconds // 3_600} h"


def asker(chain: Mapping[str, Any]) -> str:
    """Who asked, and where."""
    origin = chain["origin"]
    who = origin["sender"] or ("somebody" if origin["trigger"] == "user" else origin["trigger"])
    return f"{who} in {origin['sessionKey']}"


def row(chain: Mapping[str, Any], now: str) -> Sequence[object]:
    return (
        chain["state"],
        chain["id"][-SHORT:],
        asker(chain),
        f"{chain['steps']}/{chain['maxSteps']}",
        f"{chain['tokens']:,}",
        f"${chain['cost']:.4f}" if chain["cost"] else None,
        next_due(chain["nextDueAt"], now).removeprefix("next ") or None,
        lives(chain) or None,
    )


COLUMNS: Final = ("state", "id", "asked by", "steps", "tokens", "cost", "next", "lives")


def print_tree(chain: Mapping[str, Any], now: str, out: IO[str]) -> None:
    """On a terminal it fits the width, in a pipe nothing is cut."""
    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree

    top = Tree(Text("\n".join(heading(chain, now))))
    branches = {None: top}
    for node in chain["nodes"]:
        above = branches.get(node["parentId"], top)
        branches[node["id"]] = above.add(Text(node_line(node, now)))
    if chain["cut"]:
        top.add(Text("… more than this were left out; the newest are shown"))
    Console(file=out, highlight=False, width=None if out.isatty() else _UNCUT).print(top)


def heading(chain: Mapping[str, Any], now: str) -> list[str]:
    most = f" of {chain['maxTokens']:,}" if chain["maxTokens"] else ""
    cost = f", ${chain['cost']:.4f}" if chain["cost"] else ""
    used = f"steps {chain['steps']}/{chain['maxSteps']}, sent off {chain['sent']}/{chain['maxSent']}"
    lines = [
        f"{chain['id']} is {chain['state']}: asked by {cell(asker(chain))}, {chain['startedAt'][:19]}Z",
        f"{used}, {chain['tokens']:,}{most} tokens{cost}",
    ]
    if chain["stopReason"]:
        lines.append(f"stopped at {chain['stoppedAt'][:19]}Z: {cell(chain['stopReason'])}")
    alive = [text for text in (lives(chain), next_due(chain["nextDueAt"], now)) if text]
    return [*lines, *([f"lives: {', '.join(alive)}"] if alive else [])]


def node_line(node: Mapping[str, Any], now: str) -> str:
    """What it is, how it stands, where, what it cost, and what it is about."""
    detail = node["trigger"] if node["kind"] == "turn" else node["mode"]
    kind = _KINDS.get(node["kind"], node["kind"]) + (f" ({detail})" if detail else "")
    where = "in a session that you may not read" if node["hidden"] else node["sessionKey"]
    facts = [f"{kind} {node['state']}", where]
    facts += [f"{node['tokens']:,} tokens"] if node["tokens"] else []
    facts += [f"${node['cost']:.4f}"] if node["cost"] >= _WORTH_TELLING else []
    facts += [due] if (due := next_due(node["dueAt"], now)) else []
    facts += [f"failed: {node['error']}"] if node["error"] else []
    facts += [f"“{node['text']}”"] if node["text"] and node["trigger"] not in _SAID_ABOVE else []
    facts += [f"→ “{node['reply']}”"] if node["reply"] else []
    return cell(" · ".join(facts))
