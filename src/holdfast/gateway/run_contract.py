"""What OpenAPI says of runs."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from holdfast.gateway.contract import Answer, Iso


class AcceptedRunOut(Answer):
    run_id: str
    accepted_at: Iso
    session_key: str
    session_id: str
    turn: int
    entry_id: str | None
    joined: bool = Field(description="It became part of a turn that was there already.")
    reset: str | None = Field(None, description="Why the session was begun anew for it.")
    reply: str | None = Field(None, description="There if it was answered at once, as commands are.")
    told: str | None = Field(None, description="What ended with the session that it left, if anything did.")


class RunOut(Answer):
    model_config = ConfigDict(alias_generator=to_camel, extra="allow")

    run_id: str
    session_key: str
    session_id: str
    turn: int
    status: Literal["accepted", "running", "committed", "failed", "cancelled", "interrupted"]
    ended: bool = Field(description="Nothing more comes of it by itself.")
    accepted_at: Iso
    started_at: Iso | None
    ended_at: Iso | None
    reply: str | None
    reply_id: str | None
    silent: bool = Field(description="The agent chose to say nothing.")
    resumable: bool
    error: str | None
    model: str | None
    usage: dict[str, Any]
