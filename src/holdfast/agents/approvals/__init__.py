"""Durable approvals of tool calls: asked for, decided by a person, used once, accounted for.

with store.write(OWNER) as tx:
    admission = admit(tx, ExecCall(agent_id="main", command="make", workspace=folder), settings)
"""

from holdfast.agents.approvals import allowlist, audit, requests, workflow
from holdfast.agents.approvals.allowlist import AllowedCommand
from holdfast.agents.approvals.gate import (
    Admission,
    ExecCall,
    account_of_refusal,
    admit,
    admit_write,
    allow_always,
    redeem,
)
from holdfast.agents.approvals.requests import SIGNAL, Approval, ApprovalRequest, ApprovalStatus, decision

__all__ = [
    "SIGNAL",
    "Admission",
    "AllowedCommand",
    "Approval",
    "ApprovalRequest",
    "ApprovalStatus",
    "ExecCall",
    "account_of_refusal",
    "admit",
    "admit_write",
    "allow_always",
    "allowlist",
    "audit",
    "decision",
    "redeem",
    "requests",
    "workflow",
]
