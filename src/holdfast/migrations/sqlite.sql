CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);

CREATE TABLE entries (
    position INTEGER NOT NULL,
    id TEXT NOT NULL,
    type TEXT NOT NULL,
    role TEXT,
    session_key TEXT,
    session_id TEXT,
    turn_id TEXT,
    agent_id TEXT,
    agent_label TEXT,
    content TEXT NOT NULL,
    summary TEXT,
    raw TEXT,
    space_id TEXT,
    topic_id TEXT,
    task_id TEXT,
    related_id TEXT,
    status TEXT NOT NULL,
    code TEXT,
    source JSON,
    idempotency_key TEXT,
    revision INTEGER DEFAULT '0' NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    deleted_at BIGINT, audience TEXT DEFAULT 'owner' NOT NULL, given_space TEXT,
    PRIMARY KEY (position),
    UNIQUE (id)
);

CREATE TABLE entry_revisions (
    entry_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    content TEXT NOT NULL,
    raw TEXT,
    replaced_at BIGINT NOT NULL,
    PRIMARY KEY (entry_id, revision),
    FOREIGN KEY(entry_id) REFERENCES entries (id)
);

CREATE TABLE changes (
    seq INTEGER NOT NULL,
    type TEXT NOT NULL,
    entity_id TEXT NOT NULL,
    payload JSON,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (seq)
);

CREATE TABLE sessions (
    id TEXT NOT NULL,
    "key" TEXT NOT NULL,
    agent_id TEXT,
    status TEXT NOT NULL,
    chat_type TEXT,
    channel TEXT,
    label TEXT,
    parent_key TEXT,
    successor_id TEXT,
    input_tokens BIGINT DEFAULT '0' NOT NULL,
    output_tokens BIGINT DEFAULT '0' NOT NULL,
    total_tokens BIGINT DEFAULT '0' NOT NULL,
    context_tokens BIGINT DEFAULT '0' NOT NULL,
    compaction_count INTEGER DEFAULT '0' NOT NULL,
    memory_flush_at BIGINT,
    memory_flush_compaction_count INTEGER,
    turn_count INTEGER DEFAULT '0' NOT NULL,
    meta JSON,
    revision INTEGER DEFAULT '0' NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    last_external_at BIGINT NOT NULL,
    archived_at BIGINT,
    archive_cause TEXT, audience TEXT DEFAULT 'owner' NOT NULL, space_id TEXT,
    PRIMARY KEY (id)
);

CREATE TABLE turns (
    id TEXT NOT NULL,
    "key" TEXT NOT NULL,
    session_id TEXT NOT NULL,
    session_key TEXT NOT NULL,
    number INTEGER NOT NULL,
    "trigger" TEXT NOT NULL,
    status TEXT NOT NULL,
    attempt INTEGER DEFAULT '0' NOT NULL,
    agenda_id TEXT,
    input_id TEXT,
    reply_id TEXT,
    model TEXT,
    usage JSON,
    meta JSON,
    error TEXT,
    accepted_at BIGINT NOT NULL,
    started_at BIGINT,
    ended_at BIGINT, audience TEXT DEFAULT 'owner' NOT NULL, chain_id TEXT,
    PRIMARY KEY (id),
    UNIQUE ("key"),
    FOREIGN KEY(session_id) REFERENCES sessions (id)
);

CREATE TABLE agenda (
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    lane TEXT NOT NULL,
    "key" TEXT,
    status TEXT NOT NULL,
    due_at BIGINT NOT NULL,
    revision INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    payload JSON NOT NULL,
    owner TEXT,
    lease_until BIGINT,
    cancel_requested BOOLEAN NOT NULL,
    error TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    ended_at BIGINT, claims INTEGER DEFAULT '0' NOT NULL, losses INTEGER DEFAULT '0' NOT NULL,
    PRIMARY KEY (id)
);

CREATE TABLE outbox (
    id TEXT NOT NULL,
    "key" TEXT NOT NULL,
    kind TEXT NOT NULL,
    target TEXT NOT NULL,
    status TEXT NOT NULL,
    payload JSON NOT NULL,
    attempts INTEGER DEFAULT '0' NOT NULL,
    receipt TEXT,
    error TEXT,
    agenda_id TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    delivered_at BIGINT,
    PRIMARY KEY (id),
    UNIQUE ("key")
);

CREATE TABLE leases (
    name TEXT NOT NULL,
    owner TEXT NOT NULL,
    until BIGINT NOT NULL,
    revision INTEGER NOT NULL,
    PRIMARY KEY (name)
);

CREATE TABLE tokens (
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    hash TEXT NOT NULL,
    scope TEXT NOT NULL,
    spaces JSON,
    agents JSON,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT,
    last_used_at BIGINT, user_id TEXT,
    PRIMARY KEY (id),
    UNIQUE (hash)
);

CREATE TABLE spaces (
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    color TEXT,
    default_visible BOOLEAN NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL, shared BOOLEAN DEFAULT 0 NOT NULL,
    PRIMARY KEY (id)
);

CREATE TABLE space_edges (
    source_id TEXT NOT NULL,
    target_id TEXT NOT NULL,
    visible BOOLEAN NOT NULL,
    PRIMARY KEY (source_id, target_id),
    FOREIGN KEY(source_id) REFERENCES spaces (id),
    FOREIGN KEY(target_id) REFERENCES spaces (id)
);

CREATE TABLE topics (
    id TEXT NOT NULL,
    space_id TEXT NOT NULL,
    name TEXT NOT NULL,
    name_key TEXT NOT NULL,
    sort_index BIGINT NOT NULL,
    created_by TEXT NOT NULL,
    color TEXT,
    description TEXT,
    priority TEXT NOT NULL,
    status TEXT NOT NULL,
    snoozed_until BIGINT,
    due_at BIGINT,
    pinned BOOLEAN NOT NULL,
    tags JSON NOT NULL,
    digest TEXT,
    digest_updated_at BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL, audience TEXT DEFAULT 'owner' NOT NULL, agent_id TEXT,
    PRIMARY KEY (id),
    FOREIGN KEY(space_id) REFERENCES spaces (id)
);

CREATE TABLE topic_spaces (
    topic_id TEXT NOT NULL,
    space_id TEXT NOT NULL,
    PRIMARY KEY (topic_id, space_id),
    FOREIGN KEY(topic_id) REFERENCES topics (id),
    FOREIGN KEY(space_id) REFERENCES spaces (id)
);

CREATE TABLE tasks (
    id TEXT NOT NULL,
    topic_id TEXT NOT NULL,
    space_id TEXT NOT NULL,
    title TEXT NOT NULL,
    created_by TEXT NOT NULL,
    color TEXT,
    description TEXT,
    priority TEXT NOT NULL,
    status TEXT NOT NULL,
    snoozed_until BIGINT,
    due_at BIGINT,
    pinned BOOLEAN NOT NULL,
    tags JSON NOT NULL,
    digest TEXT,
    digest_updated_at BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL, audience TEXT DEFAULT 'owner' NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(topic_id) REFERENCES topics (id),
    FOREIGN KEY(space_id) REFERENCES spaces (id)
);

CREATE TABLE task_spaces (
    task_id TEXT NOT NULL,
    space_id TEXT NOT NULL,
    PRIMARY KEY (task_id, space_id),
    FOREIGN KEY(task_id) REFERENCES tasks (id),
    FOREIGN KEY(space_id) REFERENCES spaces (id)
);

CREATE TABLE drafts (
    "key" TEXT NOT NULL,
    value TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY ("key")
);

CREATE TABLE attachments (
    id TEXT NOT NULL,
    entry_id TEXT,
    space_id TEXT,
    file_name TEXT NOT NULL,
    mime_type TEXT NOT NULL,
    size_bytes BIGINT NOT NULL,
    sha256 TEXT NOT NULL,
    created_at BIGINT NOT NULL, audience TEXT DEFAULT 'owner' NOT NULL,
    PRIMARY KEY (id)
);

CREATE TABLE session_routing (
    session_key TEXT NOT NULL,
    items JSON NOT NULL,
    updated_at BIGINT NOT NULL, audience TEXT DEFAULT 'owner' NOT NULL,
    PRIMARY KEY (session_key)
);

CREATE TABLE decisions (
    entry_id TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    method TEXT NOT NULL,
    topic_id TEXT,
    task_id TEXT,
    confidence FLOAT,
    reasons JSON,
    decided_at BIGINT NOT NULL,
    PRIMARY KEY (entry_id)
);

CREATE TABLE supervised_runs (
    run_id TEXT NOT NULL,
    session_key TEXT NOT NULL,
    topic_id TEXT,
    status TEXT NOT NULL,
    started_at BIGINT NOT NULL,
    next_check_at BIGINT,
    step INTEGER DEFAULT '0' NOT NULL,
    last_update_at BIGINT,
    meta JSON,
    PRIMARY KEY (run_id)
);

CREATE TABLE blobs (
    hash TEXT NOT NULL,
    content TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (hash)
);

CREATE TABLE context_states (
    session_id TEXT NOT NULL,
    agent_id TEXT,
    engine TEXT NOT NULL,
    revision INTEGER NOT NULL,
    floor BIGINT NOT NULL,
    cut BIGINT NOT NULL,
    summary_id TEXT,
    fork_session_id TEXT,
    fork_until BIGINT,
    first_session BOOLEAN NOT NULL,
    daily JSON,
    called_at BIGINT,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (session_id)
);

CREATE TABLE context_prunings (
    session_id TEXT NOT NULL,
    entry_id TEXT NOT NULL,
    position BIGINT NOT NULL,
    form TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (session_id, entry_id)
);

CREATE TABLE context_manifests (
    turn_id TEXT NOT NULL,
    call INTEGER NOT NULL,
    session_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    digest TEXT NOT NULL,
    body JSON NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (turn_id, call)
);

CREATE TABLE context_calibrations (
    model TEXT NOT NULL,
    factor FLOAT NOT NULL,
    error FLOAT NOT NULL,
    samples INTEGER NOT NULL,
    rejected INTEGER NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (model)
);

CREATE TABLE approvals (
    id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    session_key TEXT,
    turn_id TEXT,
    tool TEXT NOT NULL,
    command TEXT NOT NULL,
    arguments JSON NOT NULL,
    digest TEXT NOT NULL,
    reason TEXT NOT NULL,
    status TEXT NOT NULL,
    decided_by TEXT,
    decided_at BIGINT,
    used_at BIGINT,
    expires_at BIGINT NOT NULL,
    created_at BIGINT NOT NULL, files JSON, why_not_always TEXT,
    PRIMARY KEY (id)
);

CREATE TABLE allowed_commands (
    agent_id TEXT NOT NULL,
    pattern TEXT NOT NULL,
    source TEXT NOT NULL,
    created_by TEXT,
    created_at BIGINT NOT NULL,
    last_used_at BIGINT,
    last_used_command TEXT, shown JSON,
    PRIMARY KEY (agent_id, pattern)
);

CREATE TABLE tool_audit (
    seq INTEGER NOT NULL,
    event TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    session_key TEXT,
    tool TEXT NOT NULL,
    command TEXT NOT NULL,
    rule TEXT NOT NULL,
    reason TEXT NOT NULL,
    actor TEXT,
    approval_id TEXT,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (seq)
);

CREATE TABLE lossless_summaries (
    id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    source_session_id TEXT,
    depth INTEGER NOT NULL,
    first BIGINT NOT NULL,
    until BIGINT NOT NULL,
    text TEXT NOT NULL,
    keeps JSON NOT NULL,
    tokens INTEGER NOT NULL,
    source_tokens BIGINT NOT NULL,
    entry_count INTEGER NOT NULL,
    earliest_at BIGINT NOT NULL,
    latest_at BIGINT NOT NULL,
    level TEXT NOT NULL,
    fault TEXT,
    replaces TEXT,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (id)
);

CREATE TABLE lossless_links (
    summary_id TEXT NOT NULL,
    ordinal INTEGER NOT NULL,
    source_id TEXT NOT NULL,
    PRIMARY KEY (summary_id, ordinal)
);

CREATE TABLE lossless_projections (
    session_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    items JSON NOT NULL,
    base JSON NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (session_id)
);

CREATE TABLE lossless_debts (
    session_id TEXT NOT NULL,
    pending BOOLEAN NOT NULL,
    reason TEXT NOT NULL,
    token_budget BIGINT NOT NULL,
    current_tokens BIGINT NOT NULL,
    attempts INTEGER NOT NULL,
    next_attempt_at BIGINT NOT NULL,
    outcome TEXT,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (session_id)
);

CREATE TABLE notes (
    id TEXT NOT NULL,
    "key" TEXT NOT NULL,
    session_key TEXT NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    trust TEXT NOT NULL,
    source TEXT NOT NULL,
    turn_id TEXT,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    taken_at BIGINT, audience TEXT DEFAULT 'owner' NOT NULL,
    PRIMARY KEY (id),
    UNIQUE ("key")
);

CREATE TABLE subagent_runs (
    id TEXT NOT NULL,
    spawn_key TEXT NOT NULL,
    run_id TEXT,
    child_key TEXT NOT NULL,
    child_session_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    requester_key TEXT NOT NULL,
    requester_agent TEXT NOT NULL,
    requester_turn TEXT,
    origin JSON NOT NULL,
    binding JSON,
    task TEXT NOT NULL,
    label TEXT,
    depth INTEGER NOT NULL,
    mode TEXT NOT NULL,
    cleanup TEXT NOT NULL,
    context TEXT NOT NULL,
    expects BOOLEAN NOT NULL,
    timeout_seconds INTEGER NOT NULL,
    owner TEXT NOT NULL,
    status TEXT NOT NULL,
    outcome TEXT,
    error TEXT,
    said TEXT,
    usage JSON,
    stop_reason TEXT,
    announce TEXT NOT NULL,
    announcement TEXT,
    announce_turn TEXT,
    asks INTEGER NOT NULL,
    round INTEGER NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    started_at BIGINT,
    ended_at BIGINT,
    archived_at BIGINT,
    revision INTEGER NOT NULL, chain_id TEXT, parts INTEGER DEFAULT '0' NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (spawn_key),
    UNIQUE (run_id)
);

CREATE TABLE continuation_records (
    record_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    owner_session_key TEXT NOT NULL,
    session_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    status TEXT NOT NULL,
    phase TEXT NOT NULL,
    revision INTEGER NOT NULL,
    failure_reason TEXT,
    notice_pending BOOLEAN NOT NULL,
    cancel_requested_at BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    ended_at BIGINT,
    chain_id TEXT,
    due_at BIGINT,
    state JSON NOT NULL, elected_in TEXT, call TEXT,
    PRIMARY KEY (record_id)
);

CREATE TABLE heartbeats (
    agent_id TEXT NOT NULL,
    last_at BIGINT,
    last_status TEXT,
    last_reason TEXT,
    turn_id TEXT,
    boot_turn TEXT,
    ran_at JSON NOT NULL,
    items JSON NOT NULL,
    reports JSON NOT NULL,
    day TEXT,
    day_tokens BIGINT NOT NULL,
    day_cost FLOAT NOT NULL,
    updated_at BIGINT NOT NULL,
    revision INTEGER NOT NULL,
    PRIMARY KEY (agent_id)
);

CREATE TABLE last_surfaces (
    session_key TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    direct BOOLEAN NOT NULL,
    deliver JSON NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (session_key)
);

CREATE TABLE standing_tasks (
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    session TEXT NOT NULL,
    schedule JSON NOT NULL,
    prompt TEXT NOT NULL,
    model TEXT,
    timeout_seconds INTEGER,
    deliver TEXT NOT NULL,
    enabled BOOLEAN NOT NULL,
    next_due BIGINT,
    last_run BIGINT,
    last_status TEXT,
    last_error TEXT,
    turn_id TEXT,
    runs INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    created_by JSON NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    revision INTEGER NOT NULL,
    PRIMARY KEY (id)
);

CREATE TABLE hook_calls (
    "key" TEXT NOT NULL,
    name TEXT NOT NULL,
    turn_id TEXT NOT NULL,
    received_at BIGINT NOT NULL,
    PRIMARY KEY ("key")
);

CREATE TABLE surface_bindings (
    surface TEXT NOT NULL,
    session_key TEXT NOT NULL,
    bound_at BIGINT NOT NULL,
    PRIMARY KEY (surface)
);

CREATE TABLE channel_messages (
    "key" TEXT NOT NULL,
    channel TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    run_id TEXT,
    received_at BIGINT NOT NULL,
    PRIMARY KEY ("key")
);

CREATE TABLE channel_pairings (
    id TEXT NOT NULL,
    channel TEXT NOT NULL,
    sender TEXT NOT NULL,
    label TEXT,
    surface TEXT NOT NULL,
    code TEXT NOT NULL,
    status TEXT NOT NULL,
    owner BOOLEAN NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    decided_at BIGINT,
    PRIMARY KEY (id)
);

CREATE TABLE channel_streams (
    turn_id TEXT NOT NULL,
    said TEXT NOT NULL,
    fence JSON,
    blocks INTEGER NOT NULL,
    closed BOOLEAN NOT NULL,
    preview TEXT,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (turn_id)
);

CREATE TABLE channel_receipts (
    outbox_id TEXT NOT NULL,
    piece INTEGER NOT NULL,
    channel TEXT NOT NULL,
    message_id TEXT,
    sent_at BIGINT NOT NULL,
    PRIMARY KEY (outbox_id, piece)
);

CREATE TABLE exposed_surfaces (
    surface TEXT NOT NULL,
    sender TEXT NOT NULL,
    exposed_at BIGINT NOT NULL,
    PRIMARY KEY (surface)
);

CREATE TABLE page_sessions (
    id TEXT NOT NULL,
    token_id TEXT NOT NULL,
    home_token TEXT,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    last_used_at BIGINT NOT NULL,
    ended_at BIGINT, address TEXT, program TEXT,
    PRIMARY KEY (id)
);

CREATE TABLE chains (
    id TEXT NOT NULL,
    session_key TEXT NOT NULL,
    agent_id TEXT,
    audience TEXT NOT NULL,
    "trigger" TEXT NOT NULL,
    sender TEXT,
    entry_id TEXT,
    steps INTEGER NOT NULL,
    sent INTEGER NOT NULL,
    tokens BIGINT NOT NULL,
    cost FLOAT NOT NULL,
    traceparent TEXT,
    started_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    ended_at BIGINT,
    stopped_at BIGINT,
    stop_reason TEXT,
    PRIMARY KEY (id)
);

CREATE TABLE halts (
    name TEXT NOT NULL,
    since BIGINT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (name)
);

CREATE TABLE continuation_sessions (
    session_id TEXT NOT NULL,
    session_key TEXT NOT NULL,
    band INTEGER,
    used BIGINT NOT NULL,
    window BIGINT NOT NULL,
    idle_turns INTEGER NOT NULL,
    idle_at BIGINT,
    compactions JSON NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (session_id)
);

CREATE TABLE model_lessons (
    model TEXT NOT NULL,
    fact TEXT NOT NULL,
    server TEXT NOT NULL,
    value JSON NOT NULL,
    why TEXT NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (model, fact)
);

CREATE TABLE engine_sessions (
    engine TEXT NOT NULL,
    session_id TEXT NOT NULL,
    version TEXT NOT NULL,
    told_turn INTEGER NOT NULL,
    told_position BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (engine, session_id)
);

CREATE TABLE engine_outbox (
    engine TEXT NOT NULL,
    session_id TEXT NOT NULL,
    "key" TEXT NOT NULL,
    kind TEXT NOT NULL,
    number INTEGER NOT NULL,
    position BIGINT NOT NULL,
    body JSON NOT NULL,
    attempts INTEGER NOT NULL,
    error TEXT,
    created_at BIGINT NOT NULL,
    next_at BIGINT NOT NULL,
    PRIMARY KEY (engine, session_id, "key")
);

CREATE TABLE engine_health (
    engine TEXT NOT NULL,
    calls BIGINT NOT NULL,
    failures BIGINT NOT NULL,
    last_error TEXT,
    last_error_at BIGINT,
    last_ok_at BIGINT,
    PRIMARY KEY (engine)
);

CREATE TABLE audit_trail (
    seq BIGINT NOT NULL,
    at BIGINT NOT NULL,
    act TEXT NOT NULL,
    actor TEXT NOT NULL,
    surface TEXT NOT NULL,
    address TEXT,
    behalf_of TEXT,
    target TEXT NOT NULL,
    details JSON NOT NULL,
    "before" TEXT NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (seq)
);

CREATE TABLE users (
    id TEXT NOT NULL,
    login TEXT NOT NULL,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    password TEXT,
    issuer TEXT,
    subject TEXT,
    created_at BIGINT NOT NULL,
    disabled_at BIGINT,
    last_login_at BIGINT,
    failed_logins INTEGER DEFAULT '0' NOT NULL,
    wait_until BIGINT DEFAULT '0' NOT NULL, away_until BIGINT, delegate_id TEXT,
    PRIMARY KEY (id),
    UNIQUE (login)
);

CREATE TABLE invitations (
    id TEXT NOT NULL,
    hash TEXT NOT NULL,
    role TEXT NOT NULL,
    team_id TEXT,
    invited_by TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    used_by TEXT,
    ended_at BIGINT,
    PRIMARY KEY (id),
    UNIQUE (hash)
);

CREATE TABLE teams (
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    space_id TEXT NOT NULL,
    agents JSON NOT NULL,
    created_at BIGINT NOT NULL, budget JSON,
    PRIMARY KEY (id)
);

CREATE TABLE team_members (
    team_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    joined_at BIGINT NOT NULL,
    PRIMARY KEY (team_id, user_id)
);

CREATE TABLE approval_votes (
    approval_id TEXT NOT NULL,
    person TEXT NOT NULL,
    name TEXT NOT NULL,
    behalf_of TEXT,
    at BIGINT NOT NULL,
    PRIMARY KEY (approval_id, person)
);

CREATE TABLE user_contacts (
    handle TEXT NOT NULL,
    user_id TEXT NOT NULL,
    address TEXT NOT NULL,
    linked_at BIGINT NOT NULL,
    PRIMARY KEY (handle)
);

CREATE TABLE login_codes (
    hash TEXT NOT NULL,
    kind TEXT NOT NULL,
    user_id TEXT,
    kept JSON NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (hash)
);

CREATE TABLE versions (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    number INTEGER NOT NULL,
    at BIGINT NOT NULL,
    actor TEXT NOT NULL,
    surface TEXT NOT NULL,
    what TEXT NOT NULL,
    sha256 TEXT,
    size INTEGER NOT NULL,
    content BLOB,
    PRIMARY KEY (kind, name, number)
);

CREATE TABLE surface_spaces (
    surface TEXT NOT NULL,
    space_id TEXT NOT NULL,
    address TEXT NOT NULL,
    given_at BIGINT NOT NULL,
    PRIMARY KEY (surface)
);

CREATE UNIQUE INDEX entries_idempotency ON entries (idempotency_key) WHERE idempotency_key IS NOT NULL;

CREATE INDEX entries_created ON entries (created_at, position);

CREATE INDEX entries_session ON entries (session_key, created_at, position) WHERE session_key IS NOT NULL;

CREATE INDEX entries_transcript ON entries (session_id, position) WHERE session_id IS NOT NULL;

CREATE INDEX entries_turn ON entries (turn_id, position) WHERE turn_id IS NOT NULL;

CREATE INDEX entries_topic ON entries (topic_id, created_at, position) WHERE topic_id IS NOT NULL;

CREATE INDEX entries_task ON entries (task_id, created_at, position) WHERE task_id IS NOT NULL;

CREATE INDEX entries_space ON entries (space_id, created_at, position) WHERE space_id IS NOT NULL;

CREATE INDEX entries_related ON entries (related_id, created_at) WHERE related_id IS NOT NULL;

CREATE INDEX entries_pending ON entries (session_key, position) WHERE status = 'pending' AND deleted_at IS NULL;

CREATE INDEX entries_waiting ON entries (created_at, position) WHERE status = 'pending' AND deleted_at IS NULL;

CREATE INDEX entries_failed ON entries (created_at, position) WHERE status = 'failed' AND deleted_at IS NULL;

CREATE INDEX entries_type ON entries (type, created_at, position) WHERE deleted_at IS NULL;

CREATE INDEX entries_deleted ON entries (deleted_at) WHERE deleted_at IS NOT NULL;

CREATE UNIQUE INDEX sessions_active ON sessions ("key") WHERE status = 'active';

CREATE INDEX sessions_key ON sessions ("key", created_at);

CREATE INDEX sessions_updated ON sessions (status, updated_at, id);

CREATE INDEX sessions_parent ON sessions (parent_key) WHERE parent_key IS NOT NULL;

CREATE UNIQUE INDEX turns_number ON turns (session_id, number);

CREATE INDEX turns_agenda ON turns (agenda_id) WHERE agenda_id IS NOT NULL;

CREATE INDEX turns_open ON turns (status, accepted_at) WHERE status IN ('accepted', 'running');

CREATE INDEX agenda_due ON agenda (due_at, id) WHERE status = 'queued';

CREATE INDEX agenda_lane ON agenda (lane, due_at, id) WHERE status = 'queued';

CREATE UNIQUE INDEX agenda_running ON agenda (lane) WHERE status = 'running';

CREATE UNIQUE INDEX agenda_key ON agenda ("key") WHERE key IS NOT NULL AND status IN ('queued', 'running');

CREATE INDEX agenda_ended ON agenda (ended_at) WHERE ended_at IS NOT NULL;

CREATE INDEX outbox_target ON outbox (target, created_at);

CREATE INDEX outbox_status ON outbox (status, updated_at);

CREATE INDEX topics_order ON topics (sort_index, id);

CREATE INDEX topics_status ON topics (status, sort_index, id);

CREATE INDEX topics_updated ON topics (updated_at, id);

CREATE INDEX topics_pinned ON topics (updated_at, id) WHERE pinned IS TRUE;

CREATE INDEX topics_moving ON topics (status, updated_at, id);

CREATE INDEX topics_high ON topics (updated_at, id) WHERE priority = 'high';

CREATE INDEX topics_due ON topics (due_at, id) WHERE due_at IS NOT NULL;

CREATE INDEX topic_spaces_space ON topic_spaces (space_id, topic_id);

CREATE INDEX tasks_updated ON tasks (updated_at, id);

CREATE INDEX tasks_topic ON tasks (topic_id, updated_at, id);

CREATE INDEX tasks_pinned ON tasks (updated_at, id) WHERE pinned IS TRUE;

CREATE INDEX tasks_moving ON tasks (status, updated_at, id);

CREATE INDEX tasks_high ON tasks (updated_at, id) WHERE priority = 'high';

CREATE INDEX tasks_due ON tasks (due_at, id) WHERE due_at IS NOT NULL;

CREATE INDEX task_spaces_space ON task_spaces (space_id, task_id);

CREATE INDEX drafts_updated ON drafts (updated_at, "key");

CREATE INDEX attachments_sha256 ON attachments (sha256);

CREATE INDEX attachments_entry ON attachments (entry_id, id) WHERE entry_id IS NOT NULL;

CREATE INDEX session_routing_updated ON session_routing (updated_at);

CREATE INDEX decisions_decided ON decisions (decided_at, entry_id);

CREATE INDEX supervised_runs_due ON supervised_runs (next_check_at) WHERE next_check_at IS NOT NULL;

CREATE INDEX supervised_runs_session ON supervised_runs (session_key, started_at);

CREATE INDEX context_states_agent ON context_states (agent_id);

CREATE INDEX context_prunings_place ON context_prunings (session_id, position);

CREATE INDEX context_manifests_turn ON context_manifests (session_id, number, call);

CREATE INDEX context_manifests_created ON context_manifests (created_at);

CREATE INDEX approvals_status ON approvals (status, expires_at);

CREATE INDEX approvals_newest ON approvals (created_at, id);

CREATE INDEX approvals_same ON approvals (digest, status);

CREATE INDEX tool_audit_agent ON tool_audit (agent_id, seq);

CREATE INDEX tool_audit_created ON tool_audit (created_at);

CREATE INDEX lossless_summaries_span ON lossless_summaries (session_id, first);

CREATE INDEX notes_waiting ON notes (session_key, created_at, id) WHERE taken_at IS NULL;

CREATE INDEX notes_taken ON notes (taken_at);

CREATE INDEX subagent_runs_requester ON subagent_runs (requester_key, created_at, id);

CREATE INDEX subagent_runs_child ON subagent_runs (child_key, created_at, id);

CREATE INDEX subagent_runs_live ON subagent_runs (requester_key, created_at, id) WHERE status <> 'ended';

CREATE INDEX subagent_runs_unended ON subagent_runs (created_at, id) WHERE status <> 'ended';

CREATE INDEX subagent_runs_announced ON subagent_runs (requester_key, created_at, id) WHERE announce IN ('waiting', 'asked', 'quiet');

CREATE INDEX subagent_runs_by_turn ON subagent_runs (requester_turn) WHERE status <> 'ended';

CREATE INDEX continuation_live ON continuation_records (owner_session_key, created_at, record_id) WHERE status IN ('queued', 'running');

CREATE INDEX continuation_due ON continuation_records (due_at, owner_session_key) WHERE status IN ('queued', 'running');

CREATE INDEX continuation_ended ON continuation_records (ended_at);

CREATE INDEX continuation_owed ON continuation_records (record_id) WHERE notice_pending;

CREATE INDEX last_surfaces_agent ON last_surfaces (agent_id, direct, at);

CREATE INDEX standing_tasks_agent ON standing_tasks (agent_id, created_at, id);

CREATE INDEX standing_tasks_turn ON standing_tasks (turn_id);

CREATE INDEX standing_tasks_running ON standing_tasks (id) WHERE last_status = 'running';

CREATE INDEX hook_calls_name ON hook_calls (name, received_at);

CREATE INDEX hook_calls_received ON hook_calls (received_at);

CREATE INDEX channel_messages_channel ON channel_messages (channel, received_at);

CREATE INDEX channel_messages_received ON channel_messages (received_at);

CREATE UNIQUE INDEX channel_pairings_sender ON channel_pairings (channel, sender);

CREATE INDEX channel_pairings_status ON channel_pairings (status, channel, created_at);

CREATE INDEX channel_streams_updated ON channel_streams (updated_at);

CREATE INDEX channel_receipts_message ON channel_receipts (channel, message_id);

CREATE INDEX channel_receipts_sent ON channel_receipts (channel, sent_at);

CREATE INDEX outbox_pending ON outbox (target, created_at, id) WHERE status = 'pending';

CREATE UNIQUE INDEX topics_name ON topics (space_id, name_key, audience, agent_id);

CREATE UNIQUE INDEX topics_own_name ON topics (space_id, name_key, audience) WHERE agent_id IS NULL;

CREATE INDEX entries_audience ON entries (audience, created_at, position) WHERE audience <> 'owner';

CREATE INDEX page_sessions_token ON page_sessions (token_id, created_at);

CREATE INDEX page_sessions_expires ON page_sessions (expires_at);

CREATE INDEX chains_updated ON chains (updated_at, id);

CREATE INDEX turns_chain ON turns (chain_id);

CREATE INDEX turns_unended ON turns (session_key) WHERE status IN ('accepted', 'running', 'interrupted');

CREATE INDEX subagent_runs_chain ON subagent_runs (chain_id) WHERE status <> 'ended';

CREATE INDEX continuation_chain ON continuation_records (chain_id) WHERE status IN ('queued', 'running');

CREATE INDEX continuation_elected_in ON continuation_records (elected_in, call) WHERE status IN ('queued', 'running');

CREATE INDEX subagent_runs_returning ON subagent_runs (chain_id) WHERE announce = 'waiting';

CREATE INDEX audit_trail_act ON audit_trail (act, seq);

CREATE INDEX audit_trail_actor ON audit_trail (actor, seq);

CREATE INDEX audit_trail_target ON audit_trail (target, seq);

CREATE UNIQUE INDEX users_of_provider ON users (issuer, subject);

CREATE UNIQUE INDEX tokens_name ON tokens (name, coalesce(user_id, '')) WHERE revoked_at IS NULL;

CREATE INDEX turns_of_audience ON turns (audience, accepted_at);

CREATE INDEX ix_user_contacts_user_id ON user_contacts (user_id);
