"""The gate before every command: judges it, keeps the account, and asks a person where it must."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.agents.approvals import allowlist, audit, requests
from holdfast.agents.approvals.bound_files import BoundFiles, Place, changed, digest_of, look, named, present
from holdfast.agents.approvals.requests import Approval, ApprovalRequest
from holdfast.agents.policy import (
    ExecDecision,
    ExecPolicy,
    Refusal,
    WriteDecision,
    check_pattern,
    inside_folder,
    judge,
    matches,
    parse,
)
from holdfast.agents.policy.exec_policy import Verdict
from holdfast.errors import InvalidInput
from holdfast.text import clean_text

if TYPE_CHECKING:
    from holdfast.config.tools import Exec
    from holdfast.log import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecCall:
    """One command that an agent wants to run, and where; `bound` are the files it runs, as they are now.

    `private` is Holdfast's own home, which no command reads unasked even where the workspace holds it.
    `mounts` are folders under the names that the command sees them by, in a sandbox.
    """

    agent_id: str
    command: str
    workspace: Path
    cwd: Path | None = None
    session_key: str | None = None
    turn_id: str | None = None
    elevated: bool = False
    private: Path | None = None
    mounts: tuple[tuple[str, Path], ...] = ()
    bound: BoundFiles = field(default_factory=BoundFiles)

    def looked_at(self) -> ExecCall:
        """The same with the files that it runs as they are at this moment. Reads files."""
        place = Place(folder=self.folder, workspace=self.workspace, private=self.private, mounts=self.mounts)
        return replace(self, bound=look(self.command, place))

    @property
    def folder(self) -> Path:
        return self.workspace if self.cwd is None else self.workspace / self.cwd

    @property
    def name(self) -> str:
        """Of this command in its folder, however often it is run."""
        return _named_command(self.command, str(self.folder), self.elevated)

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
            files=self.bound.digests,
            why_not_always=self.bound.why_not_always or None,
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
    if not settings.allow_changed_files:
        decision = _held(tx, call, decision, settings)
    if decision.verdict == "ask":
        lasts = settings.ask_timeout_seconds * 1000
        return Admission(decision, requests.request(tx, call.request(decision.reason), lasts_ms=lasts))
    audit.record(tx, decision.verdict, call.account, rule=decision.rule, reason=decision.reason)
    if decision.verdict == "run":
        allowlist.stamp(tx, call.agent_id, decision.patterns, call.command)
    return Admission(decision)


def _held(tx: Tx, call: ExecCall, decision: ExecDecision, settings: Exec) -> ExecDecision:
    """A pattern does not cover files that nobody was shown: what it let through is asked for again."""
    if decision.verdict != "run" or decision.rule != "allowlist" or not call.bound.needs_a_person:
        return decision
    why = _why_not_held(tx, call)
    if why is None:
        return decision
    verdict: Verdict = "block" if settings.ask == "off" else "ask"
    return ExecDecision(verdict, "miss", f"{decision.reason}, but {why}", decision.pipeline)


def _why_not_held(tx: Tx, call: ExecCall) -> str | None:
    bound = call.bound
    if bound.why_not_always:
        return bound.why_not_always
    shown = allowlist.shown_files(tx, call.agent_id, call.name)
    if any(each.digest == bound.digest for each in shown):
        return None
    if not shown:
        return f"nobody was shown what it runs: {named(present(bound.digests))}"
    before = requests.get_many(tx, [shown[-1].approval_id])
    names = changed(before[0].files, bound.digests) if before else []
    return f"{named(names) or 'what it runs'} has changed since it was allowed"


def admit_write(tx: Tx, asked: ApprovalRequest, decision: WriteDecision, settings: Exec) -> Approval | None:
    """Keep the account of a write to a protected file; an approval to wait for where a person must decide."""
    if decision.verdict == "ask":
        return requests.request(tx, asked, lasts_ms=settings.ask_timeout_seconds * 1000)
    call = audit.Call(
        agent_id=asked.agent_id, tool=asked.tool, text=asked.command, session_key=asked.session_key
    )
    audit.record(tx, decision.verdict, call, rule="protected", reason=decision.reason)
    return None


def redeem(tx: Tx, call: ExecCall, approval_id: str) -> Approval:
    """Spend the approval of this very command; an error if it was not given, ran out or was spent."""
    return requests.use(tx, approval_id, call.request(""))


def account_of_refusal(tx: Tx, call: ExecCall, approval_id: str, reason: str) -> None:
    """Of an approval that could not be spent: `redeem` leaves nothing behind."""
    audit.record(tx, "block", call.account, rule="approval", reason=reason, approval_id=approval_id)


def allow_always(tx: Tx, approval_id: str, *, by: str, pattern: str | None = None) -> Approval:
    """Approve a command and let its like run unasked from now on: by a pattern, else by its own words."""
    approval = requests.get(tx, approval_id)
    if approval.tool != "exec":
        raise InvalidInput(f"{approval.tool} has no allowlist", hint="Approve this one call instead.")
    if approval.why_not_always:
        raise InvalidInput(
            f"this command cannot be allowed for good: {approval.why_not_always}",
            code="not_always",
            hint="Approve it once. With tools.exec.allowChangedFiles, patterns of the config cover it.",
        )
    chosen = exact_pattern(approval.command) if pattern is None else check_pattern(pattern)
    parsed = parse(approval.command)
    if isinstance(parsed, Refusal) or not any(matches(words, chosen) for words in parsed.commands):
        raise InvalidInput(f"the pattern {chosen[:80]!r} does not fit the command", code="pattern_misses")
    done = requests.approve(tx, approval_id, by=by)
    allowlist.allow(tx, approval.agent_id, chosen, by=by)
    if approval.files:
        allowlist.show(tx, approval.agent_id, chosen, _shown(approval))
    return done


def _shown(approval: Approval) -> allowlist.Shown:
    given = approval.arguments
    name = _named_command(approval.command, str(given.get("cwd", "")), bool(given.get("elevated")))
    return allowlist.Shown(name, digest_of(approval.files), approval.id)


def _named_command(command: str, folder: str, elevated: bool) -> str:
    text = "\0".join((clean_text(command), clean_text(folder), "elevated" if elevated else ""))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def exact_pattern(command: str) -> str:
    """The pattern that fits this command alone; `InvalidInput` where its words do not say it all."""
    parsed = parse(command)
    plain = not isinstance(parsed, Refusal) and len(parsed.commands) == 1
    words = parsed.commands[0] if plain and not isinstance(parsed, Refusal) else ()
    if not words or any(not word or set(word) & set(" \t*?[") for word in words):
        raise InvalidInput("this command is no pattern by itself", hint="Give one, such as `git diff *`.")
    return check_pattern(" ".join(words))
