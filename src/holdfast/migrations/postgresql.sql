CREATE TABLE agenda (
    id text NOT NULL,
    kind text NOT NULL,
    lane text NOT NULL,
    key text,
    status text NOT NULL,
    due_at bigint NOT NULL,
    revision integer NOT NULL,
    attempts integer NOT NULL,
    max_attempts integer NOT NULL,
    payload jsonb NOT NULL,
    owner text,
    lease_until bigint,
    cancel_requested boolean NOT NULL,
    error text,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    ended_at bigint,
    claims integer DEFAULT 0 NOT NULL,
    losses integer DEFAULT 0 NOT NULL
);

CREATE TABLE alembic_version (
    version_num character varying(32) NOT NULL
);

CREATE TABLE allowed_commands (
    agent_id text NOT NULL,
    pattern text NOT NULL,
    source text NOT NULL,
    created_by text,
    created_at bigint NOT NULL,
    last_used_at bigint,
    last_used_command text,
    shown jsonb
);

CREATE TABLE approval_votes (
    approval_id text NOT NULL,
    person text NOT NULL,
    name text NOT NULL,
    behalf_of text,
    at bigint NOT NULL
);

CREATE TABLE approvals (
    id text NOT NULL,
    agent_id text NOT NULL,
    session_key text,
    turn_id text,
    tool text NOT NULL,
    command text NOT NULL,
    arguments jsonb NOT NULL,
    digest text NOT NULL,
    reason text NOT NULL,
    status text NOT NULL,
    decided_by text,
    decided_at bigint,
    used_at bigint,
    expires_at bigint NOT NULL,
    created_at bigint NOT NULL,
    files jsonb,
    why_not_always text
);

CREATE TABLE attachments (
    id text NOT NULL,
    entry_id text,
    space_id text,
    file_name text NOT NULL,
    mime_type text NOT NULL,
    size_bytes bigint NOT NULL,
    sha256 text NOT NULL,
    created_at bigint NOT NULL,
    audience text DEFAULT 'owner'::text NOT NULL
);

CREATE TABLE audit_trail (
    seq bigint NOT NULL,
    at bigint NOT NULL,
    act text NOT NULL,
    actor text NOT NULL,
    surface text NOT NULL,
    address text,
    behalf_of text,
    target text NOT NULL,
    details jsonb NOT NULL,
    before text NOT NULL,
    digest text NOT NULL
);

CREATE TABLE blobs (
    hash text NOT NULL,
    content text NOT NULL,
    created_at bigint NOT NULL
);

CREATE TABLE chains (
    id text NOT NULL,
    session_key text NOT NULL,
    agent_id text,
    audience text NOT NULL,
    trigger text NOT NULL,
    sender text,
    entry_id text,
    steps integer NOT NULL,
    sent integer NOT NULL,
    tokens bigint NOT NULL,
    cost double precision NOT NULL,
    traceparent text,
    started_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    ended_at bigint,
    stopped_at bigint,
    stop_reason text
);

CREATE TABLE changes (
    seq bigint NOT NULL,
    type text NOT NULL,
    entity_id text NOT NULL,
    payload jsonb,
    created_at bigint NOT NULL
);

CREATE SEQUENCE changes_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE changes_seq_seq OWNED BY changes.seq;

CREATE TABLE channel_messages (
    key text NOT NULL,
    channel text NOT NULL,
    state text NOT NULL,
    reason text NOT NULL,
    run_id text,
    received_at bigint NOT NULL
);

CREATE TABLE channel_pairings (
    id text NOT NULL,
    channel text NOT NULL,
    sender text NOT NULL,
    label text,
    surface text NOT NULL,
    code text NOT NULL,
    status text NOT NULL,
    owner boolean NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    decided_at bigint
);

CREATE TABLE channel_receipts (
    outbox_id text NOT NULL,
    piece integer NOT NULL,
    channel text NOT NULL,
    message_id text,
    sent_at bigint NOT NULL
);

CREATE TABLE channel_streams (
    turn_id text NOT NULL,
    said text NOT NULL,
    fence jsonb,
    blocks integer NOT NULL,
    closed boolean NOT NULL,
    preview text,
    updated_at bigint NOT NULL
);

CREATE TABLE context_calibrations (
    model text NOT NULL,
    factor double precision NOT NULL,
    error double precision NOT NULL,
    samples integer NOT NULL,
    rejected integer NOT NULL,
    updated_at bigint NOT NULL
);

CREATE TABLE context_manifests (
    turn_id text NOT NULL,
    call integer NOT NULL,
    session_id text NOT NULL,
    number integer NOT NULL,
    digest text NOT NULL,
    body jsonb NOT NULL,
    created_at bigint NOT NULL
);

CREATE TABLE context_prunings (
    session_id text NOT NULL,
    entry_id text NOT NULL,
    "position" bigint NOT NULL,
    form text NOT NULL,
    created_at bigint NOT NULL
);

CREATE TABLE context_states (
    session_id text NOT NULL,
    agent_id text,
    engine text NOT NULL,
    revision integer NOT NULL,
    floor bigint NOT NULL,
    cut bigint NOT NULL,
    summary_id text,
    fork_session_id text,
    fork_until bigint,
    first_session boolean NOT NULL,
    daily jsonb,
    called_at bigint,
    updated_at bigint NOT NULL
);

CREATE TABLE continuation_records (
    record_id text NOT NULL,
    kind text NOT NULL,
    owner_session_key text NOT NULL,
    session_id text NOT NULL,
    agent_id text NOT NULL,
    status text NOT NULL,
    phase text NOT NULL,
    revision integer NOT NULL,
    failure_reason text,
    notice_pending boolean NOT NULL,
    cancel_requested_at bigint,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    ended_at bigint,
    chain_id text,
    due_at bigint,
    state jsonb NOT NULL,
    elected_in text,
    call text
);

CREATE TABLE continuation_sessions (
    session_id text NOT NULL,
    session_key text NOT NULL,
    band integer,
    used bigint NOT NULL,
    "window" bigint NOT NULL,
    idle_turns integer NOT NULL,
    idle_at bigint,
    compactions jsonb NOT NULL,
    updated_at bigint NOT NULL
);

CREATE TABLE decisions (
    entry_id text NOT NULL,
    attempt integer NOT NULL,
    method text NOT NULL,
    topic_id text,
    task_id text,
    confidence double precision,
    reasons jsonb,
    decided_at bigint NOT NULL
);

CREATE TABLE drafts (
    key text NOT NULL,
    value text NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL
);

CREATE TABLE engine_health (
    engine text NOT NULL,
    calls bigint NOT NULL,
    failures bigint NOT NULL,
    last_error text,
    last_error_at bigint,
    last_ok_at bigint
);

CREATE TABLE engine_outbox (
    engine text NOT NULL,
    session_id text NOT NULL,
    key text NOT NULL,
    kind text NOT NULL,
    number integer NOT NULL,
    "position" bigint NOT NULL,
    body jsonb NOT NULL,
    attempts integer NOT NULL,
    error text,
    created_at bigint NOT NULL,
    next_at bigint NOT NULL
);

CREATE TABLE engine_sessions (
    engine text NOT NULL,
    session_id text NOT NULL,
    version text NOT NULL,
    told_turn integer NOT NULL,
    told_position bigint NOT NULL,
    updated_at bigint NOT NULL
);

CREATE TABLE entries (
    "position" bigint NOT NULL,
    id text NOT NULL,
    type text NOT NULL,
    role text,
    session_key text,
    session_id text,
    turn_id text,
    agent_id text,
    agent_label text,
    content text NOT NULL,
    summary text,
    raw text,
    space_id text,
    topic_id text,
    task_id text,
    related_id text,
    status text NOT NULL,
    code text,
    source jsonb,
    idempotency_key text,
    revision integer DEFAULT 0 NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    deleted_at bigint,
    audience text DEFAULT 'owner'::text NOT NULL,
    given_space text
);

CREATE SEQUENCE entries_position_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE entries_position_seq OWNED BY entries."position";

CREATE TABLE entry_revisions (
    entry_id text NOT NULL,
    revision integer NOT NULL,
    content text NOT NULL,
    raw text,
    replaced_at bigint NOT NULL
);

CREATE TABLE exposed_surfaces (
    surface text NOT NULL,
    sender text NOT NULL,
    exposed_at bigint NOT NULL
);

CREATE TABLE halts (
    name text NOT NULL,
    since bigint NOT NULL,
    reason text NOT NULL
);

CREATE TABLE heartbeats (
    agent_id text NOT NULL,
    last_at bigint,
    last_status text,
    last_reason text,
    turn_id text,
    boot_turn text,
    ran_at jsonb NOT NULL,
    items jsonb NOT NULL,
    reports jsonb NOT NULL,
    day text,
    day_tokens bigint NOT NULL,
    day_cost double precision NOT NULL,
    updated_at bigint NOT NULL,
    revision integer NOT NULL
);

CREATE TABLE hook_calls (
    key text NOT NULL,
    name text NOT NULL,
    turn_id text NOT NULL,
    received_at bigint NOT NULL
);

CREATE TABLE invitations (
    id text NOT NULL,
    hash text NOT NULL,
    role text NOT NULL,
    team_id text,
    invited_by text NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    used_by text,
    ended_at bigint
);

CREATE TABLE last_surfaces (
    session_key text NOT NULL,
    agent_id text NOT NULL,
    direct boolean NOT NULL,
    deliver jsonb NOT NULL,
    at bigint NOT NULL
);

CREATE TABLE leases (
    name text NOT NULL,
    owner text NOT NULL,
    until bigint NOT NULL,
    revision integer NOT NULL
);

CREATE TABLE login_codes (
    hash text NOT NULL,
    kind text NOT NULL,
    user_id text,
    kept jsonb NOT NULL,
    expires_at bigint NOT NULL
);

CREATE TABLE lossless_debts (
    session_id text NOT NULL,
    pending boolean NOT NULL,
    reason text NOT NULL,
    token_budget bigint NOT NULL,
    current_tokens bigint NOT NULL,
    attempts integer NOT NULL,
    next_attempt_at bigint NOT NULL,
    outcome text,
    updated_at bigint NOT NULL
);

CREATE TABLE lossless_links (
    summary_id text NOT NULL,
    ordinal integer NOT NULL,
    source_id text NOT NULL
);

CREATE TABLE lossless_projections (
    session_id text NOT NULL,
    revision integer NOT NULL,
    items jsonb NOT NULL,
    base jsonb NOT NULL,
    updated_at bigint NOT NULL
);

CREATE TABLE lossless_summaries (
    id text NOT NULL,
    session_id text NOT NULL,
    source_session_id text,
    depth integer NOT NULL,
    first bigint NOT NULL,
    until bigint NOT NULL,
    text text NOT NULL,
    keeps jsonb NOT NULL,
    tokens integer NOT NULL,
    source_tokens bigint NOT NULL,
    entry_count integer NOT NULL,
    earliest_at bigint NOT NULL,
    latest_at bigint NOT NULL,
    level text NOT NULL,
    fault text,
    replaces text,
    created_at bigint NOT NULL
);

CREATE TABLE model_lessons (
    model text NOT NULL,
    fact text NOT NULL,
    server text NOT NULL,
    value jsonb NOT NULL,
    why text NOT NULL,
    at bigint NOT NULL
);

CREATE TABLE notes (
    id text NOT NULL,
    key text NOT NULL,
    session_key text NOT NULL,
    kind text NOT NULL,
    text text NOT NULL,
    trust text NOT NULL,
    source text NOT NULL,
    turn_id text,
    created_at bigint NOT NULL,
    expires_at bigint,
    taken_at bigint,
    audience text DEFAULT 'owner'::text NOT NULL
);

CREATE TABLE outbox (
    id text NOT NULL,
    key text NOT NULL,
    kind text NOT NULL,
    target text NOT NULL,
    status text NOT NULL,
    payload jsonb NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    receipt text,
    error text,
    agenda_id text,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    delivered_at bigint
);

CREATE TABLE page_sessions (
    id text NOT NULL,
    token_id text NOT NULL,
    home_token text,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    last_used_at bigint NOT NULL,
    ended_at bigint,
    address text,
    program text
);

CREATE TABLE session_routing (
    session_key text NOT NULL,
    items jsonb NOT NULL,
    updated_at bigint NOT NULL,
    audience text DEFAULT 'owner'::text NOT NULL
);

CREATE TABLE sessions (
    id text NOT NULL,
    key text NOT NULL,
    agent_id text,
    status text NOT NULL,
    chat_type text,
    channel text,
    label text,
    parent_key text,
    successor_id text,
    input_tokens bigint DEFAULT '0'::bigint NOT NULL,
    output_tokens bigint DEFAULT '0'::bigint NOT NULL,
    total_tokens bigint DEFAULT '0'::bigint NOT NULL,
    context_tokens bigint DEFAULT '0'::bigint NOT NULL,
    compaction_count integer DEFAULT 0 NOT NULL,
    memory_flush_at bigint,
    memory_flush_compaction_count integer,
    turn_count integer DEFAULT 0 NOT NULL,
    meta jsonb,
    revision integer DEFAULT 0 NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    last_external_at bigint NOT NULL,
    archived_at bigint,
    archive_cause text,
    audience text DEFAULT 'owner'::text NOT NULL,
    space_id text
);

CREATE TABLE space_edges (
    source_id text NOT NULL,
    target_id text NOT NULL,
    visible boolean NOT NULL
);

CREATE TABLE spaces (
    id text NOT NULL,
    name text NOT NULL,
    color text,
    default_visible boolean NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    shared boolean DEFAULT false NOT NULL
);

CREATE TABLE standing_tasks (
    id text NOT NULL,
    name text NOT NULL,
    agent_id text NOT NULL,
    session text NOT NULL,
    schedule jsonb NOT NULL,
    prompt text NOT NULL,
    model text,
    timeout_seconds integer,
    deliver text NOT NULL,
    enabled boolean NOT NULL,
    next_due bigint,
    last_run bigint,
    last_status text,
    last_error text,
    turn_id text,
    runs integer NOT NULL,
    failures integer NOT NULL,
    created_by jsonb NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    revision integer NOT NULL
);

CREATE TABLE subagent_runs (
    id text NOT NULL,
    spawn_key text NOT NULL,
    run_id text,
    child_key text NOT NULL,
    child_session_id text NOT NULL,
    agent_id text NOT NULL,
    requester_key text NOT NULL,
    requester_agent text NOT NULL,
    requester_turn text,
    origin jsonb NOT NULL,
    binding jsonb,
    task text NOT NULL,
    label text,
    depth integer NOT NULL,
    mode text NOT NULL,
    cleanup text NOT NULL,
    context text NOT NULL,
    expects boolean NOT NULL,
    timeout_seconds integer NOT NULL,
    owner text NOT NULL,
    status text NOT NULL,
    outcome text,
    error text,
    said text,
    usage jsonb,
    stop_reason text,
    announce text NOT NULL,
    announcement text,
    announce_turn text,
    asks integer NOT NULL,
    round integer NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    started_at bigint,
    ended_at bigint,
    archived_at bigint,
    revision integer NOT NULL,
    chain_id text,
    parts integer DEFAULT 0 NOT NULL
);

CREATE TABLE supervised_runs (
    run_id text NOT NULL,
    session_key text NOT NULL,
    topic_id text,
    status text NOT NULL,
    started_at bigint NOT NULL,
    next_check_at bigint,
    step integer DEFAULT 0 NOT NULL,
    last_update_at bigint,
    meta jsonb
);

CREATE TABLE surface_bindings (
    surface text NOT NULL,
    session_key text NOT NULL,
    bound_at bigint NOT NULL
);

CREATE TABLE surface_spaces (
    surface text NOT NULL,
    space_id text NOT NULL,
    address text NOT NULL,
    given_at bigint NOT NULL
);

CREATE TABLE task_spaces (
    task_id text NOT NULL,
    space_id text NOT NULL
);

CREATE TABLE tasks (
    id text NOT NULL,
    topic_id text NOT NULL,
    space_id text NOT NULL,
    title text NOT NULL,
    created_by text NOT NULL,
    color text,
    description text,
    priority text NOT NULL,
    status text NOT NULL,
    snoozed_until bigint,
    due_at bigint,
    pinned boolean NOT NULL,
    tags jsonb NOT NULL,
    digest text,
    digest_updated_at bigint,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    audience text DEFAULT 'owner'::text NOT NULL
);

CREATE TABLE team_members (
    team_id text NOT NULL,
    user_id text NOT NULL,
    joined_at bigint NOT NULL
);

CREATE TABLE teams (
    id text NOT NULL,
    name text NOT NULL,
    space_id text NOT NULL,
    agents jsonb NOT NULL,
    created_at bigint NOT NULL,
    budget jsonb
);

CREATE TABLE tokens (
    id text NOT NULL,
    name text NOT NULL,
    hash text NOT NULL,
    scope text NOT NULL,
    spaces jsonb,
    agents jsonb,
    created_at bigint NOT NULL,
    expires_at bigint,
    revoked_at bigint,
    last_used_at bigint,
    user_id text
);

CREATE TABLE tool_audit (
    seq bigint NOT NULL,
    event text NOT NULL,
    agent_id text NOT NULL,
    session_key text,
    tool text NOT NULL,
    command text NOT NULL,
    rule text NOT NULL,
    reason text NOT NULL,
    actor text,
    approval_id text,
    created_at bigint NOT NULL
);

CREATE SEQUENCE tool_audit_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE tool_audit_seq_seq OWNED BY tool_audit.seq;

CREATE TABLE topic_spaces (
    topic_id text NOT NULL,
    space_id text NOT NULL
);

CREATE TABLE topics (
    id text NOT NULL,
    space_id text NOT NULL,
    name text NOT NULL,
    name_key text NOT NULL,
    sort_index bigint NOT NULL,
    created_by text NOT NULL,
    color text,
    description text,
    priority text NOT NULL,
    status text NOT NULL,
    snoozed_until bigint,
    due_at bigint,
    pinned boolean NOT NULL,
    tags jsonb NOT NULL,
    digest text,
    digest_updated_at bigint,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    audience text DEFAULT 'owner'::text NOT NULL,
    agent_id text
);

CREATE TABLE turns (
    id text NOT NULL,
    key text NOT NULL,
    session_id text NOT NULL,
    session_key text NOT NULL,
    number integer NOT NULL,
    trigger text NOT NULL,
    status text NOT NULL,
    attempt integer DEFAULT 0 NOT NULL,
    agenda_id text,
    input_id text,
    reply_id text,
    model text,
    usage jsonb,
    meta jsonb,
    error text,
    accepted_at bigint NOT NULL,
    started_at bigint,
    ended_at bigint,
    audience text DEFAULT 'owner'::text NOT NULL,
    chain_id text
);

CREATE TABLE user_contacts (
    handle text NOT NULL,
    user_id text NOT NULL,
    address text NOT NULL,
    linked_at bigint NOT NULL
);

CREATE TABLE users (
    id text NOT NULL,
    login text NOT NULL,
    name text NOT NULL,
    role text NOT NULL,
    password text,
    issuer text,
    subject text,
    created_at bigint NOT NULL,
    disabled_at bigint,
    last_login_at bigint,
    failed_logins integer DEFAULT 0 NOT NULL,
    wait_until bigint DEFAULT '0'::bigint NOT NULL,
    away_until bigint,
    delegate_id text
);

CREATE TABLE versions (
    kind text NOT NULL,
    name text NOT NULL,
    number integer NOT NULL,
    at bigint NOT NULL,
    actor text NOT NULL,
    surface text NOT NULL,
    what text NOT NULL,
    sha256 text,
    size integer NOT NULL,
    content bytea
);

ALTER TABLE ONLY changes ALTER COLUMN seq SET DEFAULT nextval('changes_seq_seq'::regclass);

ALTER TABLE ONLY entries ALTER COLUMN "position" SET DEFAULT nextval('entries_position_seq'::regclass);

ALTER TABLE ONLY tool_audit ALTER COLUMN seq SET DEFAULT nextval('tool_audit_seq_seq'::regclass);

ALTER TABLE ONLY agenda
    ADD CONSTRAINT agenda_pkey PRIMARY KEY (id);

ALTER TABLE ONLY alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);

ALTER TABLE ONLY allowed_commands
    ADD CONSTRAINT allowed_commands_pkey PRIMARY KEY (agent_id, pattern);

ALTER TABLE ONLY approval_votes
    ADD CONSTRAINT approval_votes_pkey PRIMARY KEY (approval_id, person);

ALTER TABLE ONLY approvals
    ADD CONSTRAINT approvals_pkey PRIMARY KEY (id);

ALTER TABLE ONLY attachments
    ADD CONSTRAINT attachments_pkey PRIMARY KEY (id);

ALTER TABLE ONLY audit_trail
    ADD CONSTRAINT audit_trail_pkey PRIMARY KEY (seq);

ALTER TABLE ONLY blobs
    ADD CONSTRAINT blobs_pkey PRIMARY KEY (hash);

ALTER TABLE ONLY chains
    ADD CONSTRAINT chains_pkey PRIMARY KEY (id);

ALTER TABLE ONLY changes
    ADD CONSTRAINT changes_pkey PRIMARY KEY (seq);

ALTER TABLE ONLY channel_messages
    ADD CONSTRAINT channel_messages_pkey PRIMARY KEY (key);

ALTER TABLE ONLY channel_pairings
    ADD CONSTRAINT channel_pairings_pkey PRIMARY KEY (id);

ALTER TABLE ONLY channel_receipts
    ADD CONSTRAINT channel_receipts_pkey PRIMARY KEY (outbox_id, piece);

ALTER TABLE ONLY channel_streams
    ADD CONSTRAINT channel_streams_pkey PRIMARY KEY (turn_id);

ALTER TABLE ONLY context_calibrations
    ADD CONSTRAINT context_calibrations_pkey PRIMARY KEY (model);

ALTER TABLE ONLY context_manifests
    ADD CONSTRAINT context_manifests_pkey PRIMARY KEY (turn_id, call);

ALTER TABLE ONLY context_prunings
    ADD CONSTRAINT context_prunings_pkey PRIMARY KEY (session_id, entry_id);

ALTER TABLE ONLY context_states
    ADD CONSTRAINT context_states_pkey PRIMARY KEY (session_id);

ALTER TABLE ONLY continuation_records
    ADD CONSTRAINT continuation_records_pkey PRIMARY KEY (record_id);

ALTER TABLE ONLY continuation_sessions
    ADD CONSTRAINT continuation_sessions_pkey PRIMARY KEY (session_id);

ALTER TABLE ONLY decisions
    ADD CONSTRAINT decisions_pkey PRIMARY KEY (entry_id);

ALTER TABLE ONLY drafts
    ADD CONSTRAINT drafts_pkey PRIMARY KEY (key);

ALTER TABLE ONLY engine_health
    ADD CONSTRAINT engine_health_pkey PRIMARY KEY (engine);

ALTER TABLE ONLY engine_outbox
    ADD CONSTRAINT engine_outbox_pkey PRIMARY KEY (engine, session_id, key);

ALTER TABLE ONLY engine_sessions
    ADD CONSTRAINT engine_sessions_pkey PRIMARY KEY (engine, session_id);

ALTER TABLE ONLY entries
    ADD CONSTRAINT entries_id_key UNIQUE (id);

ALTER TABLE ONLY entries
    ADD CONSTRAINT entries_pkey PRIMARY KEY ("position");

ALTER TABLE ONLY entry_revisions
    ADD CONSTRAINT entry_revisions_pkey PRIMARY KEY (entry_id, revision);

ALTER TABLE ONLY exposed_surfaces
    ADD CONSTRAINT exposed_surfaces_pkey PRIMARY KEY (surface);

ALTER TABLE ONLY halts
    ADD CONSTRAINT halts_pkey PRIMARY KEY (name);

ALTER TABLE ONLY heartbeats
    ADD CONSTRAINT heartbeats_pkey PRIMARY KEY (agent_id);

ALTER TABLE ONLY hook_calls
    ADD CONSTRAINT hook_calls_pkey PRIMARY KEY (key);

ALTER TABLE ONLY invitations
    ADD CONSTRAINT invitations_hash_key UNIQUE (hash);

ALTER TABLE ONLY invitations
    ADD CONSTRAINT invitations_pkey PRIMARY KEY (id);

ALTER TABLE ONLY last_surfaces
    ADD CONSTRAINT last_surfaces_pkey PRIMARY KEY (session_key);

ALTER TABLE ONLY leases
    ADD CONSTRAINT leases_pkey PRIMARY KEY (name);

ALTER TABLE ONLY login_codes
    ADD CONSTRAINT login_codes_pkey PRIMARY KEY (hash);

ALTER TABLE ONLY lossless_debts
    ADD CONSTRAINT lossless_debts_pkey PRIMARY KEY (session_id);

ALTER TABLE ONLY lossless_links
    ADD CONSTRAINT lossless_links_pkey PRIMARY KEY (summary_id, ordinal);

ALTER TABLE ONLY lossless_projections
    ADD CONSTRAINT lossless_projections_pkey PRIMARY KEY (session_id);

ALTER TABLE ONLY lossless_summaries
    ADD CONSTRAINT lossless_summaries_pkey PRIMARY KEY (id);

ALTER TABLE ONLY model_lessons
    ADD CONSTRAINT model_lessons_pkey PRIMARY KEY (model, fact);

ALTER TABLE ONLY notes
    ADD CONSTRAINT notes_key_key UNIQUE (key);

ALTER TABLE ONLY notes
    ADD CONSTRAINT notes_pkey PRIMARY KEY (id);

ALTER TABLE ONLY outbox
    ADD CONSTRAINT outbox_key_key UNIQUE (key);

ALTER TABLE ONLY outbox
    ADD CONSTRAINT outbox_pkey PRIMARY KEY (id);

ALTER TABLE ONLY page_sessions
    ADD CONSTRAINT page_sessions_pkey PRIMARY KEY (id);

ALTER TABLE ONLY session_routing
    ADD CONSTRAINT session_routing_pkey PRIMARY KEY (session_key);

ALTER TABLE ONLY sessions
    ADD CONSTRAINT sessions_pkey PRIMARY KEY (id);

ALTER TABLE ONLY space_edges
    ADD CONSTRAINT space_edges_pkey PRIMARY KEY (source_id, target_id);

ALTER TABLE ONLY spaces
    ADD CONSTRAINT spaces_pkey PRIMARY KEY (id);

ALTER TABLE ONLY standing_tasks
    ADD CONSTRAINT standing_tasks_pkey PRIMARY KEY (id);

ALTER TABLE ONLY subagent_runs
    ADD CONSTRAINT subagent_runs_pkey PRIMARY KEY (id);

ALTER TABLE ONLY subagent_runs
    ADD CONSTRAINT subagent_runs_run_id_key UNIQUE (run_id);

ALTER TABLE ONLY subagent_runs
    ADD CONSTRAINT subagent_runs_spawn_key_key UNIQUE (spawn_key);

ALTER TABLE ONLY supervised_runs
    ADD CONSTRAINT supervised_runs_pkey PRIMARY KEY (run_id);

ALTER TABLE ONLY surface_bindings
    ADD CONSTRAINT surface_bindings_pkey PRIMARY KEY (surface);

ALTER TABLE ONLY surface_spaces
    ADD CONSTRAINT surface_spaces_pkey PRIMARY KEY (surface);

ALTER TABLE ONLY task_spaces
    ADD CONSTRAINT task_spaces_pkey PRIMARY KEY (task_id, space_id);

ALTER TABLE ONLY tasks
    ADD CONSTRAINT tasks_pkey PRIMARY KEY (id);

ALTER TABLE ONLY team_members
    ADD CONSTRAINT team_members_pkey PRIMARY KEY (team_id, user_id);

ALTER TABLE ONLY teams
    ADD CONSTRAINT teams_pkey PRIMARY KEY (id);

ALTER TABLE ONLY tokens
    ADD CONSTRAINT tokens_hash_key UNIQUE (hash);

ALTER TABLE ONLY tokens
    ADD CONSTRAINT tokens_pkey PRIMARY KEY (id);

ALTER TABLE ONLY tool_audit
    ADD CONSTRAINT tool_audit_pkey PRIMARY KEY (seq);

ALTER TABLE ONLY topic_spaces
    ADD CONSTRAINT topic_spaces_pkey PRIMARY KEY (topic_id, space_id);

ALTER TABLE ONLY topics
    ADD CONSTRAINT topics_pkey PRIMARY KEY (id);

ALTER TABLE ONLY turns
    ADD CONSTRAINT turns_key_key UNIQUE (key);

ALTER TABLE ONLY turns
    ADD CONSTRAINT turns_pkey PRIMARY KEY (id);

ALTER TABLE ONLY user_contacts
    ADD CONSTRAINT user_contacts_pkey PRIMARY KEY (handle);

ALTER TABLE ONLY users
    ADD CONSTRAINT users_login_key UNIQUE (login);

ALTER TABLE ONLY users
    ADD CONSTRAINT users_pkey PRIMARY KEY (id);

ALTER TABLE ONLY versions
    ADD CONSTRAINT versions_pkey PRIMARY KEY (kind, name, number);

CREATE INDEX agenda_due ON agenda USING btree (due_at, id) WHERE (status = 'queued'::text);

CREATE INDEX agenda_ended ON agenda USING btree (ended_at) WHERE (ended_at IS NOT NULL);

CREATE UNIQUE INDEX agenda_key ON agenda USING btree (key) WHERE ((key IS NOT NULL) AND (status = ANY (ARRAY['queued'::text, 'running'::text])));

CREATE INDEX agenda_lane ON agenda USING btree (lane, due_at, id) WHERE (status = 'queued'::text);

CREATE UNIQUE INDEX agenda_running ON agenda USING btree (lane) WHERE (status = 'running'::text);

CREATE INDEX approvals_newest ON approvals USING btree (created_at, id);

CREATE INDEX approvals_same ON approvals USING btree (digest, status);

CREATE INDEX approvals_status ON approvals USING btree (status, expires_at);

CREATE INDEX attachments_entry ON attachments USING btree (entry_id, id) WHERE (entry_id IS NOT NULL);

CREATE INDEX attachments_sha256 ON attachments USING btree (sha256);

CREATE INDEX audit_trail_act ON audit_trail USING btree (act, seq);

CREATE INDEX audit_trail_actor ON audit_trail USING btree (actor, seq);

CREATE INDEX audit_trail_target ON audit_trail USING btree (target, seq);

CREATE INDEX chains_updated ON chains USING btree (updated_at, id);

CREATE INDEX channel_messages_channel ON channel_messages USING btree (channel, received_at);

CREATE INDEX channel_messages_received ON channel_messages USING btree (received_at);

CREATE UNIQUE INDEX channel_pairings_sender ON channel_pairings USING btree (channel, sender);

CREATE INDEX channel_pairings_status ON channel_pairings USING btree (status, channel, created_at);

CREATE INDEX channel_receipts_message ON channel_receipts USING btree (channel, message_id);

CREATE INDEX channel_receipts_sent ON channel_receipts USING btree (channel, sent_at);

CREATE INDEX channel_streams_updated ON channel_streams USING btree (updated_at);

CREATE INDEX context_manifests_created ON context_manifests USING btree (created_at);

CREATE INDEX context_manifests_turn ON context_manifests USING btree (session_id, number, call);

CREATE INDEX context_prunings_place ON context_prunings USING btree (session_id, "position");

CREATE INDEX context_states_agent ON context_states USING btree (agent_id);

CREATE INDEX continuation_chain ON continuation_records USING btree (chain_id) WHERE (status = ANY (ARRAY['queued'::text, 'running'::text]));

CREATE INDEX continuation_due ON continuation_records USING btree (due_at, owner_session_key) WHERE (status = ANY (ARRAY['queued'::text, 'running'::text]));

CREATE INDEX continuation_elected_in ON continuation_records USING btree (elected_in, call) WHERE (status = ANY (ARRAY['queued'::text, 'running'::text]));

CREATE INDEX continuation_ended ON continuation_records USING btree (ended_at);

CREATE INDEX continuation_live ON continuation_records USING btree (owner_session_key, created_at, record_id) WHERE (status = ANY (ARRAY['queued'::text, 'running'::text]));

CREATE INDEX continuation_owed ON continuation_records USING btree (record_id) WHERE notice_pending;

CREATE INDEX decisions_decided ON decisions USING btree (decided_at, entry_id);

CREATE INDEX drafts_updated ON drafts USING btree (updated_at, key);

CREATE INDEX entries_audience ON entries USING btree (audience, created_at, "position") WHERE (audience <> 'owner'::text);

CREATE INDEX entries_created ON entries USING btree (created_at, "position");

CREATE INDEX entries_deleted ON entries USING btree (deleted_at) WHERE (deleted_at IS NOT NULL);

CREATE INDEX entries_failed ON entries USING btree (created_at, "position") WHERE ((status = 'failed'::text) AND (deleted_at IS NULL));

CREATE UNIQUE INDEX entries_idempotency ON entries USING btree (idempotency_key) WHERE (idempotency_key IS NOT NULL);

CREATE INDEX entries_pending ON entries USING btree (session_key, "position") WHERE ((status = 'pending'::text) AND (deleted_at IS NULL));

CREATE INDEX entries_related ON entries USING btree (related_id, created_at) WHERE (related_id IS NOT NULL);

CREATE INDEX entries_session ON entries USING btree (session_key, created_at, "position") WHERE (session_key IS NOT NULL);

CREATE INDEX entries_space ON entries USING btree (space_id, created_at, "position") WHERE (space_id IS NOT NULL);

CREATE INDEX entries_task ON entries USING btree (task_id, created_at, "position") WHERE (task_id IS NOT NULL);

CREATE INDEX entries_topic ON entries USING btree (topic_id, created_at, "position") WHERE (topic_id IS NOT NULL);

CREATE INDEX entries_transcript ON entries USING btree (session_id, "position") WHERE (session_id IS NOT NULL);

CREATE INDEX entries_turn ON entries USING btree (turn_id, "position") WHERE (turn_id IS NOT NULL);

CREATE INDEX entries_type ON entries USING btree (type, created_at, "position") WHERE (deleted_at IS NULL);

CREATE INDEX entries_waiting ON entries USING btree (created_at, "position") WHERE ((status = 'pending'::text) AND (deleted_at IS NULL));

CREATE INDEX hook_calls_name ON hook_calls USING btree (name, received_at);

CREATE INDEX hook_calls_received ON hook_calls USING btree (received_at);

CREATE INDEX ix_user_contacts_user_id ON user_contacts USING btree (user_id);

CREATE INDEX last_surfaces_agent ON last_surfaces USING btree (agent_id, direct, at);

CREATE INDEX lossless_summaries_span ON lossless_summaries USING btree (session_id, first);

CREATE INDEX notes_taken ON notes USING btree (taken_at);

CREATE INDEX notes_waiting ON notes USING btree (session_key, created_at, id) WHERE (taken_at IS NULL);

CREATE INDEX outbox_pending ON outbox USING btree (target, created_at, id) WHERE (status = 'pending'::text);

CREATE INDEX outbox_status ON outbox USING btree (status, updated_at);

CREATE INDEX outbox_target ON outbox USING btree (target, created_at);

CREATE INDEX page_sessions_expires ON page_sessions USING btree (expires_at);

CREATE INDEX page_sessions_token ON page_sessions USING btree (token_id, created_at);

CREATE INDEX session_routing_updated ON session_routing USING btree (updated_at);

CREATE UNIQUE INDEX sessions_active ON sessions USING btree (key) WHERE (status = 'active'::text);

CREATE INDEX sessions_key ON sessions USING btree (key, created_at);

CREATE INDEX sessions_parent ON sessions USING btree (parent_key) WHERE (parent_key IS NOT NULL);

CREATE INDEX sessions_updated ON sessions USING btree (status, updated_at, id);

CREATE INDEX standing_tasks_agent ON standing_tasks USING btree (agent_id, created_at, id);

CREATE INDEX standing_tasks_running ON standing_tasks USING btree (id) WHERE (last_status = 'running'::text);

CREATE INDEX standing_tasks_turn ON standing_tasks USING btree (turn_id);

CREATE INDEX subagent_runs_announced ON subagent_runs USING btree (requester_key, created_at, id) WHERE (announce = ANY (ARRAY['waiting'::text, 'asked'::text, 'quiet'::text]));

CREATE INDEX subagent_runs_by_turn ON subagent_runs USING btree (requester_turn) WHERE (status <> 'ended'::text);

CREATE INDEX subagent_runs_chain ON subagent_runs USING btree (chain_id) WHERE (status <> 'ended'::text);

CREATE INDEX subagent_runs_child ON subagent_runs USING btree (child_key, created_at, id);

CREATE INDEX subagent_runs_live ON subagent_runs USING btree (requester_key, created_at, id) WHERE (status <> 'ended'::text);

CREATE INDEX subagent_runs_requester ON subagent_runs USING btree (requester_key, created_at, id);

CREATE INDEX subagent_runs_returning ON subagent_runs USING btree (chain_id) WHERE (announce = 'waiting'::text);

CREATE INDEX subagent_runs_unended ON subagent_runs USING btree (created_at, id) WHERE (status <> 'ended'::text);

CREATE INDEX supervised_runs_due ON supervised_runs USING btree (next_check_at) WHERE (next_check_at IS NOT NULL);

CREATE INDEX supervised_runs_session ON supervised_runs USING btree (session_key, started_at);

CREATE INDEX task_spaces_space ON task_spaces USING btree (space_id, task_id);

CREATE INDEX tasks_due ON tasks USING btree (due_at, id) WHERE (due_at IS NOT NULL);

CREATE INDEX tasks_high ON tasks USING btree (updated_at, id) WHERE (priority = 'high'::text);

CREATE INDEX tasks_moving ON tasks USING btree (status, updated_at, id);

CREATE INDEX tasks_pinned ON tasks USING btree (updated_at, id) WHERE (pinned IS TRUE);

CREATE INDEX tasks_topic ON tasks USING btree (topic_id, updated_at, id);

CREATE INDEX tasks_updated ON tasks USING btree (updated_at, id);

CREATE UNIQUE INDEX tokens_name ON tokens USING btree (name, COALESCE(user_id, ''::text)) WHERE (revoked_at IS NULL);

CREATE INDEX tool_audit_agent ON tool_audit USING btree (agent_id, seq);

CREATE INDEX tool_audit_created ON tool_audit USING btree (created_at);

CREATE INDEX topic_spaces_space ON topic_spaces USING btree (space_id, topic_id);

CREATE INDEX topics_due ON topics USING btree (due_at, id) WHERE (due_at IS NOT NULL);

CREATE INDEX topics_high ON topics USING btree (updated_at, id) WHERE (priority = 'high'::text);

CREATE INDEX topics_moving ON topics USING btree (status, updated_at, id);

CREATE UNIQUE INDEX topics_name ON topics USING btree (space_id, name_key, audience, agent_id);

CREATE INDEX topics_order ON topics USING btree (sort_index, id);

CREATE UNIQUE INDEX topics_own_name ON topics USING btree (space_id, name_key, audience) WHERE (agent_id IS NULL);

CREATE INDEX topics_pinned ON topics USING btree (updated_at, id) WHERE (pinned IS TRUE);

CREATE INDEX topics_status ON topics USING btree (status, sort_index, id);

CREATE INDEX topics_updated ON topics USING btree (updated_at, id);

CREATE INDEX turns_agenda ON turns USING btree (agenda_id) WHERE (agenda_id IS NOT NULL);

CREATE INDEX turns_chain ON turns USING btree (chain_id);

CREATE UNIQUE INDEX turns_number ON turns USING btree (session_id, number);

CREATE INDEX turns_of_audience ON turns USING btree (audience, accepted_at);

CREATE INDEX turns_open ON turns USING btree (status, accepted_at) WHERE (status = ANY (ARRAY['accepted'::text, 'running'::text]));

CREATE INDEX turns_unended ON turns USING btree (session_key) WHERE (status = ANY (ARRAY['accepted'::text, 'running'::text, 'interrupted'::text]));

CREATE UNIQUE INDEX users_of_provider ON users USING btree (issuer, subject);

ALTER TABLE ONLY entry_revisions
    ADD CONSTRAINT entry_revisions_entry_id_fkey FOREIGN KEY (entry_id) REFERENCES entries(id);

ALTER TABLE ONLY space_edges
    ADD CONSTRAINT space_edges_source_id_fkey FOREIGN KEY (source_id) REFERENCES spaces(id);

ALTER TABLE ONLY space_edges
    ADD CONSTRAINT space_edges_target_id_fkey FOREIGN KEY (target_id) REFERENCES spaces(id);

ALTER TABLE ONLY task_spaces
    ADD CONSTRAINT task_spaces_space_id_fkey FOREIGN KEY (space_id) REFERENCES spaces(id);

ALTER TABLE ONLY task_spaces
    ADD CONSTRAINT task_spaces_task_id_fkey FOREIGN KEY (task_id) REFERENCES tasks(id);

ALTER TABLE ONLY tasks
    ADD CONSTRAINT tasks_space_id_fkey FOREIGN KEY (space_id) REFERENCES spaces(id);

ALTER TABLE ONLY tasks
    ADD CONSTRAINT tasks_topic_id_fkey FOREIGN KEY (topic_id) REFERENCES topics(id);

ALTER TABLE ONLY topic_spaces
    ADD CONSTRAINT topic_spaces_space_id_fkey FOREIGN KEY (space_id) REFERENCES spaces(id);

ALTER TABLE ONLY topic_spaces
    ADD CONSTRAINT topic_spaces_topic_id_fkey FOREIGN KEY (topic_id) REFERENCES topics(id);

ALTER TABLE ONLY topics
    ADD CONSTRAINT topics_space_id_fkey FOREIGN KEY (space_id) REFERENCES spaces(id);

ALTER TABLE ONLY turns
    ADD CONSTRAINT turns_session_id_fkey FOREIGN KEY (session_id) REFERENCES sessions(id);
