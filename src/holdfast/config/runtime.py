"""The running of the house: gateway, store, agenda, retention, logging, schedules and teams."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from holdfast.config.section import Section, key, part, table
from holdfast.config.values import (
    Bytes,
    Count,
    Days,
    DurationMinutes,
    Flag,
    Int,
    Ms,
    Names,
    Positive,
    Seconds,
    Secret,
    SecretUrl,
    Zone,
)


class GatewayAuth(Section):
    """Who may call the gateway."""

    token: Secret | None = key(None, "Admin token; unset: the one made at first start.")
    cookie_days: Days = key(30, "How long a page stays logged in.", ge=1)
    trusted_proxies: Names = key((), "Addresses whose forwarding headers are believed.")


class GatewayLimits(Section):
    """Sizes that the gateway takes."""

    entry_bytes: Bytes = key(1024**2, "One log entry; larger is refused with 413.", ge=1024)
    body_bytes: Bytes = key(16 * 1024**2, "One request body.", ge=1024)
    ingest_batch: Positive = key(1000, "Entries in one batch.", le=100_000)
    max_connections: Positive = key(1000, "Connections at once.", le=100_000)
    head_seconds: Seconds = key(
        10, "Time for the head of a request, and for a WebSocket's handshake.", ge=1, le=3600
    )

    @model_validator(mode="after")
    def _entry_fits_body(self) -> Self:
        if self.entry_bytes > self.body_bytes:
            raise ValueError("expected entryBytes to be at most bodyBytes")
        return self


class StreamOptions(Section):
    """The live stream of events."""

    ping_seconds: Seconds = key(25, "Time between pings.", ge=1, le=3600)
    replay_limit: Positive = key(5000, "Events replayed after a break; more is a reset.", le=1_000_000)


class HealthOptions(Section):
    """When the gateway calls itself unwell."""

    stuck_seconds: Seconds = key(30, "A part that is at one pass for longer is stuck.", ge=1, le=3600)
    exit_after_seconds: Seconds = key(
        120, "A vital part that is down or stuck for longer ends the process; 0: never.", le=86_400
    )


class GatewayConfig(Section):
    """The gateway."""

    host: str = key("127.0.0.1", "Address to listen on.", min_length=1)
    port: Int = key(8787, "Port to listen on; 0: any free one.", ge=0, le=65535)
    public_url: str | None = key(None, "Address that others reach it by.")
    auth: GatewayAuth = part("Who may call.")
    limits: GatewayLimits = part("Sizes.")
    stream: StreamOptions = part("The live stream.")
    health: HealthOptions = part("Health.")
    cors_origins: Names = key((), "Other origins whose pages may call.")
    readers: Count | None = key(
        None,
        "Processes that answer searches and context blocks while several are asked for at once; "
        "unset: one for each core that it may use, at most 4, and none on one core; 0: none.",
        le=64,
    )
    shutdown_grace_seconds: Seconds = key(3, "How long running turns may finish at shutdown.")


class ConfigSource(Section):
    """Where the config lies."""

    source: Literal["files", "store"] = key(
        "files",
        "`store`: all but `config`, `store`, `gateway` and `logging`, and skills, lie in the store, "
        "for every gateway on it; unset: as `HOLDFAST_CONFIG_SOURCE` says.",
    )


class StoreConfig(Section):
    """Where the log is kept."""

    url: SecretUrl | None = key(None, "SQLAlchemy address; unset: `holdfast.db` in the home.")
    pool_size: Positive = key(5, "Connections kept open.", le=1000)
    threads: Positive = key(8, "Threads for store work.", le=256)
    busy_timeout_ms: Ms = key(5000, "How long SQLite waits for a writer.")
    lock_timeout_ms: Ms = key(15_000, "How long PostgreSQL waits for a lock; 0: for ever.")
    durability: Literal["process", "power"] = key(
        "power", "What an acknowledged write survives: the end of the process, or a power cut too."
    )
    listen_url: SecretUrl | None = key(
        None, "PostgreSQL's own address for notifications, where `url` is a pooler's."
    )


class AgendaConfig(Section):
    """What is due, and how much of it runs at once."""

    max_concurrent: Positive = key(8, "Items that run at once.", le=1000)
    per_kind: dict[str, Positive] = table(
        {}, "Caps by kind, as `holdfast agenda list` names them; kinds left out keep theirs."
    )
    lease_seconds: Seconds = key(60, "How long a worker holds an item without a sign of life.", ge=1)


class RetentionConfig(Section):
    """How long rows are kept; unset: for ever."""

    agenda_days: Days | None = key(7, "Finished agenda items.")
    agenda_rows: Count = key(100_000, "Finished agenda items, at most; 0: no limit.")
    changes_days: Days | None = key(7, "Change feed.")
    changes_rows: Count = key(1_000_000, "Change feed, at most; 0: no limit.")
    deleted_days: Days | None = key(30, "Deleted entries, until they are gone for good.")
    transcript_days: Days | None = key(None, "Transcripts.")
    outbox_days: Days | None = key(7, "Delivered messages of the outbox.")
    manifest_days: Days | None = key(90, "Manifests of built contexts.")
    sweep_minutes: Int = key(60, "Time between sweeps.", ge=1)
    batch_rows: Positive = key(1000, "Rows removed in one transaction.", le=100_000)


class LoggingConfig(Section):
    """The program's own log."""

    level: Literal["debug", "info", "warning", "error"] = key("info", "Least severity written.")
    format: Literal["text", "json"] = key("text", "Form of a line.")
    redact: Flag = key(True, "Whether secrets are masked.")
    redact_patterns: Names = key((), "Further patterns to mask.")
    max_bytes: Bytes = key(10 * 1024**2, "Size at which a file is rotated.", ge=1024)
    keep_files: Positive = key(5, "Rotated files kept.", le=1000)
    keep_days: Days = key(30, "Days that a file of `logs/` is kept after it was last written to.", ge=1)
    total_bytes: Bytes = key(1024**3, "Size of all of `logs/`; above it the oldest files go.", ge=1024)


class CronConfig(Section):
    """Scheduled turns."""

    enabled: Flag = key(True, "Whether schedules run.")
    max_concurrent_runs: Positive = key(1, "Scheduled turns at once.", le=100)
    max_jobs: Positive = key(200, "Schedules that may exist.", le=100_000)
    timezone: Zone = key("user", "Zone of schedules that name none.")
    session_retention: DurationMinutes | None = key(
        "24h", "How long a schedule's session is kept; null: for ever.", validate_default=True
    )


class Queue(Section):
    """Messages that come while a turn runs."""

    mode: Literal["steer", "followup", "collect", "interrupt"] = key(
        "collect", "`steer` into the turn, one `followup` each, `collect` into one, or `interrupt`."
    )
    debounce_ms: Ms = key(500, "Messages within this time are taken together.")
    cap: Positive = key(20, "Messages that may wait.", le=10_000)
    drop: Literal["old", "new", "summarize"] = key("summarize", "What happens above the cap.")
    by_channel: dict[str, Literal["steer", "followup", "collect", "interrupt"]] = table(
        {}, "Other modes by channel."
    )


class MessagesConfig(Section):
    """Messages."""

    queue: Queue = part("Messages that come while a turn runs.")


class ApprovalRule(Section):
    """Who decides on some calls besides the owner, and how many must agree. All that is said must fit."""

    agents: Names = key(("*",), "Calls of these agents; `*`: of any.")
    tools: Names = key(("*",), "Calls of these tools; `*`: of any.")
    teams: Names = key((), "Asked for in the sessions of these teams and of their members; empty: anywhere.")
    approvers: Names = key((), "`user:<login>`, `team:<id>` or `role:<role>`; besides the owner.")
    people: Positive = key(1, "How many different people must say yes.", le=5)
    private: Flag = key(False, "Whether they decide on, and read, calls in the owner's own sessions too.")


class ApprovalsConfig(Section):
    """Approvals as a workflow."""

    rules: tuple[ApprovalRule, ...] = key((), "Who decides on what, besides the owner.")
    remind_minutes: Positive | None = key(10, "How often those who were asked are reminded; null: never.")


class OidcConfig(Section):
    """Logins by an OpenID provider."""

    issuer: str | None = key(None, "The provider's own name, an address; unset: logins by password alone.")
    client_id: str | None = key(None, "What the provider calls this gateway.")
    client_secret: Secret | None = key(None, "`${NAME}` is taken from the environment; unset: PKCE alone.")
    scopes: Names = key(("openid", "email", "profile"), "What is asked for; offline_access to renew logins.")
    login_claim: str = key("email", "The claim that is somebody's login; an email counts if verified.")
    groups_claim: str = key("groups", "The claim with the groups somebody is in.")
    roles: dict[str, Literal["admin", "member", "viewer"]] = table({}, "Role that a group stands for.")
    teams: dict[str, str] = table({}, "Team that a group stands for.")
    default_role: Literal["admin", "member", "viewer"] = key("viewer", "Role where no group says another.")
    create: Flag = key(False, "Whether people whom nobody added here are let in.")
    session_minutes: Positive = key(60, "How long a login lasts until the provider is asked again.")
    leeway_seconds: Count = key(60, "How far the clocks of both may be apart.", le=600)


class TeamsConfig(Section):
    """Teams."""

    oidc: OidcConfig = part("Logins by an OpenID provider.")
    approvals: ApprovalsConfig = part("Who decides on calls of tools.")

    audit_days: Days | None = key(365, "How long the trail of who did what is kept; null: for ever.")
