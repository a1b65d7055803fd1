"""Approvals: durable, bound to one call, decided once, used once, every step accounted for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from builders import in_threads, soon, until
from holdfast.agents.approvals import (
    SIGNAL,
    Admission,
    Approval,
    ApprovalStatus,
    ExecCall,
    admit,
    allow_always,
    allowlist,
    audit,
    decision,
    redeem,
    requests,
)
from holdfast.agents.policy import exec_settings
from holdfast.clock import ManualClock
from holdfast.config import parse_config
from holdfast.config.tools import Exec
from holdfast.errors import Busy, Conflict, InvalidInput, NotFound
from holdfast.log import OWNER, Store, Threads, changes

SESSION = "agent:main:main"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def call(workspace: Path, command: str = "make all", **fields: Any) -> ExecCall:
    return ExecCall(
        **{"agent_id": "main", "command": command, "workspace": workspace, "session_key": SESSION, **fields}
    )


def settings(**fields: Any) -> Exec:
    return Exec.model_validate(fields)


def tried(store: Store, asked: ExecCall, **fields: Any) -> Admission:
    with store.write(OWNER) as tx:
        return admit(tx, asked, settings(**fields))


def waiting(store: Store, asked: ExecCall, **fields: Any) -> Approval:
    approval = tried(store, asked, **fields).approval
    assert approval is not None
    return approval


def events(store: Store) -> list[str]:
    with store.read(OWNER) as tx:
        return [one.event for one in reversed(audit.listing(tx))]


def told(store: Store) -> list[str]:
    with store.read(OWNER) as tx:
        return [change.type for change in changes.since(tx, 0)]


def test_a_command_is_asked_for_approved_and_run_once(store: Store, workspace: Path) -> None:
    asked = call(workspace)
    approval = waiting(store, asked)
    assert (approval.status, approval.command, approval.tool) == ("pending", "make all", "exec")
    with pytest.raises(Conflict), store.write(OWNER) as tx:
        redeem(tx, asked, approval.id)
    with store.write(OWNER) as tx:
        done = requests.approve(tx, approval.id, by="ann")
    assert (done.status, done.decided_by) == ("approved", "ann")
    with store.write(OWNER) as tx:
        assert redeem(tx, asked, approval.id).used_at is not None
    with pytest.raises(Conflict, match="used already"), store.write(OWNER) as tx:
        redeem(tx, asked, approval.id)
    assert events(store) == ["requested", "approved", "used"]
    assert told(store) == ["approval.requested", "approval.decided"]


def test_an_approval_holds_for_its_own_call_alone(store: Store, workspace: Path) -> None:
    asked = call(workspace)
    approval = waiting(store, asked)
    with store.write(OWNER) as tx:
        requests.approve(tx, approval.id, by="ann")
    others: list[Mapping[str, Any]] = [
        {"command": "make all "},
        {"cwd": Path("sub")},
        {"agent_id": "other"},
        {"session_key": "agent:main:subagent:x"},
        {"elevated": True},
    ]
    for other in others:
        with pytest.raises(Conflict, match="another call"), store.write(OWNER) as tx:
            redeem(tx, call(workspace, **other), approval.id)
    with store.write(OWNER) as tx:
        redeem(tx, asked, approval.id)


def test_the_same_call_that_waits_is_not_asked_twice(store: Store, workspace: Path) -> None:
    found = in_threads(4, lambda _: waiting(store, call(workspace)))
    assert len({one.id for one in found}) == 1
    assert waiting(store, call(workspace, "make other")).id != found[0].id
    assert told(store) == ["approval.requested"] * 2


def test_what_nobody_decides_runs_out(store: Store, workspace: Path, clock: ManualClock) -> None:
    approval = waiting(store, call(workspace), askTimeoutSeconds=60)
    clock.advance(seconds=60)
    with store.read(OWNER) as tx:
        assert requests.listing(tx, status=ApprovalStatus.PENDING) == []
        assert [one.status for one in requests.listing(tx)] == ["expired"]
        assert len(requests.listing(tx, status=ApprovalStatus.EXPIRED)) == 1
    with pytest.raises(Conflict, match="expired"), store.write(OWNER) as tx:
        requests.approve(tx, approval.id, by="ann")
    with store.write(OWNER) as tx:
        assert requests.expire(tx) == 1
        assert requests.expire(tx) == 0
    assert events(store) == ["requested", "expired"]
    assert told(store)[-1] == "approval.decided"
    assert waiting(store, call(workspace)).id != approval.id


def test_an_approval_that_nobody_picks_up_does_not_hold_for_ever(
    store: Store, workspace: Path, clock: ManualClock
) -> None:
    approval = waiting(store, call(workspace), askTimeoutSeconds=600)
    clock.advance(seconds=599)
    with store.write(OWNER) as tx:
        requests.approve(tx, approval.id, by="ann")
    clock.advance(seconds=120)
    with store.write(OWNER) as tx:
        assert requests.get(tx, approval.id).status == "approved"
    clock.advance(minutes=5)
    with pytest.raises(Conflict, match="out of time"), store.write(OWNER) as tx:
        redeem(tx, call(workspace), approval.id)


def test_who_waits_is_woken_by_the_decision(sqlite_store: Store, workspace: Path, threads: Threads) -> None:
    approval = waiting(sqlite_store, call(workspace))

    def approve() -> None:
        with sqlite_store.write(OWNER) as tx:
            requests.approve(tx, approval.id, by="ann")

    async def both() -> Approval:
        waits = asyncio.create_task(decision(sqlite_store, threads, approval.id))
        await until(lambda: bool(sqlite_store.signals._callbacks.get(SIGNAL)))
        await threads(approve)
        return await soon(waits)

    assert asyncio.run(both()).status == "approved"


def test_who_waits_learns_that_the_time_is_over(
    sqlite_store: Store, workspace: Path, threads: Threads, clock: ManualClock
) -> None:
    approval = waiting(sqlite_store, call(workspace))
    clock.advance(hours=1)
    assert asyncio.run(decision(sqlite_store, threads, approval.id)).status == "expired"
    assert events(sqlite_store) == ["requested", "expired"]


def test_an_answer_is_given_once(store: Store, workspace: Path) -> None:
    approval = waiting(store, call(workspace))
    with store.write(OWNER) as tx:
        requests.deny(tx, approval.id, by="ann")
    with store.write(OWNER) as tx:
        assert requests.deny(tx, approval.id, by="bob").decided_by == "ann"
    with pytest.raises(Conflict, match="denied already"), store.write(OWNER) as tx:
        requests.approve(tx, approval.id, by="bob")
    with pytest.raises(Conflict), store.write(OWNER) as tx:
        redeem(tx, call(workspace), approval.id)
    with pytest.raises(NotFound), store.write(OWNER) as tx:
        requests.approve(tx, "appr-none", by="ann")
    assert events(store) == ["requested", "denied"]


def test_allowing_lets_the_like_run_from_now_on(store: Store, workspace: Path, clock: ManualClock) -> None:
    approval = waiting(store, call(workspace, "git diff HEAD"))
    with pytest.raises(InvalidInput, match="does not fit"), store.write(OWNER) as tx:
        allow_always(tx, approval.id, pattern="git log *", by="ann")
    with store.write(OWNER) as tx:
        assert allow_always(tx, approval.id, pattern="git diff *", by="ann").status == "approved"
    clock.advance(seconds=5)
    admission = tried(store, call(workspace, "git diff main"))
    assert (admission.decision.verdict, admission.decision.rule) == ("run", "allowlist")
    with store.read(OWNER) as tx:
        (entry,) = allowlist.listing(tx, "main")
        now = tx.now
    assert (entry.pattern, entry.created_by, entry.source) == ("git diff *", "ann", "person")
    assert (entry.last_used_at, entry.last_used_command) == (now, "git diff main")
    assert tried(store, call(workspace, "git diff main", agent_id="other")).decision.verdict == "ask"
    with store.write(OWNER) as tx:
        allowlist.disallow(tx, "main", "git diff *", by="ann")
    assert tried(store, call(workspace, "git diff main")).decision.verdict == "ask"
    assert {"pattern", "unpattern", "run"} <= set(events(store))


def test_allowing_without_a_pattern_allows_this_very_command(store: Store, workspace: Path) -> None:
    with store.write(OWNER) as tx:
        allow_always(tx, waiting_id(store, workspace, "make all", tx), by="ann")
    assert tried(store, call(workspace, "make all")).decision.verdict == "run"
    assert tried(store, call(workspace, "make all -j")).decision.verdict == "ask"
    for odd in ("make all; make more", "make 'a b'", "a | b"):
        approval = waiting(store, call(workspace, odd))
        with pytest.raises(InvalidInput), store.write(OWNER) as tx:
            allow_always(tx, approval.id, by="ann")


@pytest.mark.parametrize("command", ["./job.sh", "sh job.sh"])
@pytest.mark.parametrize("pattern", [None, "exact"])
def test_a_script_that_the_agent_can_change_is_allowed_for_good_as_it_was_shown(
    store: Store, workspace: Path, command: str, pattern: str | None
) -> None:
    (workspace / "job.sh").write_text("echo hi\n")
    approval = waiting(store, call(workspace, command).looked_at())
    with store.write(OWNER) as tx:
        allow_always(tx, approval.id, by="ann", pattern=pattern and command)
    assert tried(store, call(workspace, command).looked_at()).decision.verdict == "run"
    (workspace / "job.sh").write_text("echo ho\n")
    again = tried(store, call(workspace, command).looked_at())
    assert again.decision.verdict == "ask"
    assert "job.sh has changed since it was allowed" in again.decision.reason
    assert again.approval is not None
    with store.write(OWNER) as tx:
        allow_always(tx, again.approval.id, by="ann")
    assert tried(store, call(workspace, command).looked_at()).decision.verdict == "run"


def test_what_was_shown_under_one_pattern_counts_where_another_fits_first(
    store: Store, workspace: Path
) -> None:
    (workspace / "job.sh").write_text("echo hi\n")
    asked = call(workspace, "sh job.sh").looked_at()
    approval = waiting(store, asked, allowlist=["sh *"])
    with store.write(OWNER) as tx:
        allow_always(tx, approval.id, by="ann")
    assert tried(store, asked, allowlist=["sh *"]).decision.verdict == "run"
    with store.write(OWNER) as tx:
        allowlist.disallow(tx, "main", "sh job.sh", by="ann")
    assert tried(store, asked, allowlist=["sh *"]).decision.verdict == "ask"


def waiting_id(store: Store, workspace: Path, command: str, tx: Any) -> str:
    approval = admit(tx, call(workspace, command), settings()).approval
    assert approval is not None
    return approval.id


def test_patterns_of_the_config_count_while_they_stand_there(store: Store, workspace: Path) -> None:
    assert tried(store, call(workspace, "npm test"), allowlist=["npm test"]).decision.verdict == "run"
    with store.read(OWNER) as tx:
        (entry,) = allowlist.listing(tx)
    assert (entry.source, entry.last_used_command) == ("config", "npm test")
    assert tried(store, call(workspace, "npm test")).decision.verdict == "ask"


def test_refusals_and_safe_commands_are_in_the_account(store: Store, workspace: Path) -> None:
    assert tried(store, call(workspace, "ls")).decision.rule == "safe-bins"
    assert tried(store, call(workspace, "rm x"), ask="off").decision.verdict == "block"
    assert tried(store, call(workspace, "ls"), security="deny").decision.verdict == "block"
    with store.read(OWNER) as tx:
        rows = audit.listing(tx, agent_ids=frozenset(("main",)))
    assert [(row.event, row.rule) for row in rows] == [
        ("block", "deny"),
        ("block", "miss"),
        ("run", "safe-bins"),
    ]
    assert {row.session_key for row in rows} == {SESSION}


def test_secrets_are_masked_in_the_account_but_not_before_the_person(store: Store, workspace: Path) -> None:
    secret = "sk-abcdefghijklmnop"
    approval = waiting(store, call(workspace, f"deploy --api-key={secret}"))
    assert secret in approval.command
    with store.write(OWNER) as tx:
        allowlist.allow(tx, "main", "deploy *", by="ann")
    tried(store, call(workspace, f"deploy --api-key={secret}"))
    with store.read(OWNER) as tx:
        kept = [row.command for row in audit.listing(tx)]
        stamps = [entry.last_used_command for entry in allowlist.listing(tx)]
    assert kept
    assert stamps != [None]
    assert not any(secret in (text or "") for text in kept + stamps)


def test_so_many_may_wait_and_no_more(store: Store, workspace: Path) -> None:
    with store.write(OWNER) as tx:
        for number in range(requests.MAX_PENDING):
            admit(tx, call(workspace, f"make {number}"), settings())
    with pytest.raises(Busy):
        tried(store, call(workspace, "make more"))
    assert tried(store, call(workspace, "make more", agent_id="other")).approval is not None


def test_the_old_is_removed_in_its_time(store: Store, workspace: Path, clock: ManualClock) -> None:
    approval = waiting(store, call(workspace))
    with store.write(OWNER) as tx:
        requests.deny(tx, approval.id, by="ann")
    waiting(store, call(workspace, "make more"), askTimeoutSeconds=10**7)
    clock.advance(hours=25)
    with store.write(OWNER) as tx:
        assert requests.prune(tx, 1) == 1
        assert audit.prune(tx, 1) == 3
        assert [one.command for one in requests.listing(tx)] == ["make more"]


def test_an_agents_own_exec_settings_lie_over_the_shared_ones() -> None:
    config = parse_config(
        '{tools: {exec: {security: "deny", ask: "always"}},'
        ' agents: {list: [{id: "main"}, {id: "free", tools: {exec: {security: "full"}}}]}}'
    )
    assert (exec_settings(config, "main").security, exec_settings(config, "free").security) == (
        "deny",
        "full",
    )
    assert exec_settings(config, "free").ask == "always"
