"""May this command run now, must a person be asked, or is it refused: one pure function."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from holdfast.agents.policy.patterns import matching
from holdfast.agents.policy.safe_bins import Inside, unsafe
from holdfast.agents.policy.words import Pipeline, Refusal, parse

Security = Literal["deny", "allowlist", "full"]
Ask = Literal["off", "on-miss", "always"]
Verdict = Literal["run", "ask", "block"]
Rule = Literal["deny", "full", "safe-bins", "allowlist", "miss", "always"]


@dataclass(frozen=True, slots=True)
class ExecPolicy:
    """How commands are judged. `allowlist` are patterns that were approved before."""

    security: Security = "allowlist"
    ask: Ask = "on-miss"
    safe_bins: frozenset[str] = frozenset()
    allowlist: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExecDecision:
    """`pipeline` is there when the command was understood: run that, not the text, where it is.

    `patterns` are those of the allowlist that were needed, to be stamped with their use.
    """

    verdict: Verdict
    rule: Rule
    reason: str
    pipeline: Pipeline | None = None
    patterns: tuple[str, ...] = ()


def judge(command: str, policy: ExecPolicy, inside: Inside) -> ExecDecision:
    """The flow of the exec tool: deny, full, safe programs, allowlist, then ask or refuse.

    `inside` says whether a path lies within the workspace, links followed. `always` asks even for what
    would run; nothing turns a refusal by `deny` into a question.
    """
    if policy.security == "deny":
        return ExecDecision("block", "deny", "commands are switched off (tools.exec.security is deny)")
    if not command.strip():
        return ExecDecision("block", "miss", "the command is empty")
    found = _judged(command, policy, inside)
    if found.verdict == "run" and policy.ask == "always":
        return ExecDecision("ask", "always", f"every command is asked for; {found.reason}", found.pipeline)
    return found


def _judged(command: str, policy: ExecPolicy, inside: Inside) -> ExecDecision:
    if policy.security == "full":
        return ExecDecision("run", "full", "every command may run (tools.exec.security is full)")
    parsed = parse(command)
    if isinstance(parsed, Refusal):
        return _missed(policy, f"the command {parsed.reason}", None)
    if not inside("."):
        return _missed(policy, "the working folder is outside the workspace", parsed)
    used: list[str] = []
    for words in parsed.commands:
        why = unsafe(words, policy.safe_bins, inside)
        if why is None:
            continue
        pattern = matching(words, policy.allowlist)
        if pattern is None:
            return _missed(policy, f"no pattern of the allowlist fits, and {why}", parsed)
        used.append(pattern)
    if used:
        return ExecDecision("run", "allowlist", f"the allowlist has {used[0]!r}", parsed, tuple(used))
    return ExecDecision("run", "safe-bins", "it only reads, and within the workspace", parsed)


def _missed(policy: ExecPolicy, reason: str, pipeline: Pipeline | None) -> ExecDecision:
    verdict: Verdict = "block" if policy.ask == "off" else "ask"
    return ExecDecision(verdict, "miss", reason, pipeline)


def inside_folder(root: str, cwd: str, private: str | None = None) -> Inside:
    """Whether a path, seen from `cwd`, lies in `root` once every link is followed.

    Where `private`, the home of Holdfast, lies in `root` too, it and what leads down to it are out of bounds.
    """
    home, sealed = os.path.realpath(root), None if private is None else os.path.realpath(private)
    if sealed is not None and not _below(sealed, home):
        sealed = None

    def inside(path: str, *, deep: bool = False) -> bool:
        if path.startswith("~") or "\0" in path:
            return False
        found = os.path.realpath(os.path.join(cwd, path))
        if sealed is not None and (_below(found, sealed) or (deep and _below(sealed, found))):
            return False
        return _below(found, home)

    return inside


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
