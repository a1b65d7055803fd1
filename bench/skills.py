"""How many skills of a folder can be read, by reason, against what a YAML library makes of the same files.

    python bench/skills.py ~/clawhub/skills

Every SKILL.md below the folder is read as an agent's own would be. The peer is PyYAML's safe loader with the
rules of the published format: a map between two fences, with a description, and with a name of its own or of
its folder. Counted besides: skills that ask for something (`requires` anywhere in the head) and appear to ask
for nothing, and values that YAML 1.1 turns into something other than the text that was written.
"""

from __future__ import annotations

import argparse
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from holdfast.agents.skills import Requirements, Skill, Tier, parse_skill
from holdfast.errors import HoldfastError
from holdfast.frontmatter import read_frontmatter

SHOWN = 12


@dataclass(frozen=True)
class Outcome:
    path: Path
    peer: Any  # the map that the peer read, or the reason why not
    ours: Skill | str
    seconds: float

    @property
    def peer_reads(self) -> bool:
        return isinstance(self.peer, dict)

    @property
    def we_read(self) -> bool:
        return isinstance(self.ours, Skill)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--all", action="store_true", help="Name every file of each list, not the first few.")
    args = parser.parse_args()
    outcomes = [outcome(path) for path in files(args.folder)]
    report(outcomes, None if args.all else SHOWN)
    return 1 if any(one.peer_reads and not one.we_read for one in outcomes) else 0


def files(folder: Path) -> Iterator[Path]:
    yield from sorted(
        path for path in folder.rglob("*") if path.name.lower() == "skill.md" and path.is_file()
    )


def outcome(path: Path) -> Outcome:
    text = path.read_bytes().decode("utf-8", "replace")
    started = time.process_time()
    ours: Skill | str
    try:
        ours = parse_skill(text, path, Tier.EXTRA)
    except HoldfastError as error:
        ours = error.message
    return Outcome(path, peer(text, path), ours, time.process_time() - started)


def peer(text: str, path: Path) -> Any:
    match = re.match(
        r"\ufeff?\s*---[ \t]*\r?\n(.*?)^(?:---|\.\.\.)[ \t]*\r?$", text, re.DOTALL | re.MULTILINE
    )
    if match is None:
        return "no frontmatter"
    try:
        found = yaml.safe_load(match[1])
    except (yaml.YAMLError, ValueError) as error:
        return f"not YAML: {getattr(error, 'problem', None) or error}"
    if not isinstance(found, dict):
        return "not a map"
    return found if found.get("description") else "no description"


def report(outcomes: list[Outcome], shown: int | None) -> None:
    count = len(outcomes)
    both = Counter((one.peer_reads, one.we_read) for one in outcomes)
    total = sum(one.seconds for one in outcomes)
    read = sum(one.we_read for one in outcomes)
    print(f"{count} skills; {read} read, {total / max(count, 1) * 1000:.2f} ms CPU each")
    print(
        f"  the peer reads {sum(one.peer_reads for one in outcomes)}; of these we refuse {both[True, False]}"
    )
    print(f"  the peer refuses and we read {both[False, True]} (one-line values that want quotes)")
    print("refused, by reason:")
    reasons = Counter(reason(str(one.ours)) for one in outcomes if not one.we_read)
    for text, number in reasons.most_common():
        print(f"  {number:5}  {text}")
    listed(
        "the peer reads these and we do not", [o for o in outcomes if o.peer_reads and not o.we_read], shown
    )
    listed(
        "they ask for something and appear to ask for nothing", [o for o in outcomes if is_silent(o)], shown
    )
    listed("values that YAML 1.1 turns into something else", [o for o in outcomes if is_turned(o)], shown)


def reason(message: str) -> str:
    return re.sub(r"'.*'|\"[^\"]*\"", "…", re.sub(r"^line \d+: ", "", message))


def listed(title: str, found: list[Outcome], shown: int | None) -> None:
    print(f"{title}: {len(found)}")
    for one in found[:shown]:
        print(f"  {one.path}: {one.ours if isinstance(one.ours, str) else one.ours.name}")


def is_silent(one: Outcome) -> bool:
    """Whether a need that the head states is neither kept nor told."""
    if not isinstance(one.ours, Skill) or not isinstance(one.peer, dict):
        return False
    return needs_something(one.peer) and one.ours.requires == Requirements() and not one.ours.notes


def needs_something(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    asked = value.get("requires")
    stated = isinstance(asked, dict) and any(
        asked[key] for key in asked if not str(key).startswith("optional")
    )
    return stated or bool(asked and isinstance(asked, list)) or any(map(needs_something, value.values()))


def is_turned(one: Outcome) -> bool:
    if not isinstance(one.ours, Skill) or not isinstance(one.peer, dict):
        return False
    texts = read_frontmatter(one.path.read_text("utf-8")).values
    named = [key for key in ("name", "description", "version") if key in one.peer and key in texts]
    return any(one.peer[key] is not None and str(one.peer[key]) != texts[key] for key in named)


if __name__ == "__main__":
    raise SystemExit(main())
