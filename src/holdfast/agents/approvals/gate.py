"""The gate before every command: judges it, keeps the account, and asks a person where it must."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.agents.approvals import allowlist, audit, requests
from holdfast.agents.approvals.requests import Approval, ApprovalRequest
from holdfast.agents.approvals.scripts import scripts_of
from holdfast.agents.policy import (
    ExecDecision,
    ExecPolicy,
    Refusal,
    check_pattern,
    inside_folder,
    judge,
    matches,
    parse,
)
from holdfast.errors import InvalidInput

if TYPE_CHECKING:
    from holdfast.config.tools import Exec
    from holdfast.log import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecCall:
    """One command that an agent wants to run, and where; `scripts` are those it runs, as they are now.

    `private` is Holdfast's own home, which no command reads unasked even where the workspace holds it.
    """

    agent_id: str
    command: str
    workspace: Path
    cwd: Path | None = None
    session_key: str | None = None
    turn_id: str | None = None
    elevated: bool = False
    private: Path | None = None
    scripts: tuple[tuple[str, str], ...] = ()

    def looked_at(self) -> ExecCall:
        """The same with its scripts as they are at this moment. Reads files."""
        return replace(self, scripts=scripts_of(self.command, self.folder, self.workspace))

    @property
    def folder(self) -> Path:
        return self.workspace if self.cwd is None else self.workspace / self.cwd

    @property
    def account(self) -> audit.Call:
        return audit.Call(
            agent_id=self.agent_id, tool="exec", text=self.command, session_key=self.session_key
        )

    def request(self, reason: str) -> ApprovalRequest:
        arguments: dict[str, Any] = {"command": self.command, "cwd": str(self.folder)}
        return ApprovalRequest(
            agent_id=self.agent_id,
            tool="exec",
            command=self.command,
            arguments=arguments | ({"elevated": True} if self.elevated else {}),
            reason=reason,
            session_key=self.session_key,
            turn_id=self.turn_id,
            scripts=self.scripts,
        )


@dataclass(frozen=True, slots=True)
class Admission:
    """What came of it: `decision.verdict` says run, block or ask; asked, there is an approval to wait for."""

    decision: ExecDecision
    approval: Approval | None = None


def admit(tx: Tx, call: ExecCall, settings: Exec) -> Admission:
    """Judge a command, stamp the patterns it used, write the account; ask where a person must decide."""
    policy = ExecPolicy(
        security=settings.security,
        ask=settings.ask,
        safe_bins=frozenset(settings.safe_bins),
        allowlist=allowlist.patterns(tx, call.agent_id, settings.allowlist),
    )
    private = None if call.private is None else str(call.private)
    decision = judge(call.command, policy, inside_folder(str(call.workspace), str(call.folder), private))
    if decision.verdict == "ask":
        lasts = settings.ask_timeout_seconds * 1000
        return Admission(decision, requests.request(tx, call.request(decision.reason), lasts_ms=lasts))
    audit.record(tx, decision.verdict, call.account, rule=decision.rule, reason=decision.reason)
    if decision.verdict == "run":
        allowlist.stamp(tx, call.agent_id, decision.patterns, call.command)
    return Admission(decision)


def redeem(tx: Tx, call: ExecCall, approval_id: str) -> Approval:
    """Spend the approval of this very command; an error if it was not given, ran out or was spent."""
    return requests.use(tx, approval_id, call.request(""))


def allow_always(tx: Tx, approval_id: str, *, by: str, pattern: str | None = None) -> Approval:
    """Approve a command and let its like run unasked from now on: by a pattern, else by its own words."""
    approval = requests.get(tx, approval_id)
    if approval.tool != "exec":
        raise InvalidInput(f"{approval.tool} has no allowlist", hint="Approve this one call instead.")
    if pattern is None and requests.runs_scripts(approval):
        raise InvalidInput(
            "this command runs a script of the workspace, which the agent can change",
            code="script_pattern",
            hint="Approve it once; or give a pattern, if the agent may run whatever it writes there.",
        )
    chosen = exact_pattern(approval.command) if pattern is None else check_pattern(pattern)
    parsed = parse(approval.command)
    if isinstance(parsed, Refusal) or not any(matches(words, chosen) for words in parsed.commands):
        raise InvalidInput(f"the pattern {chosen[:80]!r} does not fit the command", code="pattern_misses")
    done = requests.approve(tx, approval_id, by=by)
    allowlist.allow(tx, approval.agent_id, chosen, by=by)
    return done


def exact_pattern(command: str) -> str:
    """The pattern that fits this command alone; `InvalidInput` where its words do not say it all."""
    parsed = parse(command)
    plain = not isinstance(parsed, Refusal) and len(parsed.commands) == 1
    words = parsed.commands[0] if plain and not isinstance(parsed, Refusal) else ()
    if not words or any(not word or set(word) & set(" \t*?[") for word in words):
        raise InvalidInput("this command is no pattern by itself", hint="Give one, such as `git diff *`.")
    return check_pattern(" ".join(words))
