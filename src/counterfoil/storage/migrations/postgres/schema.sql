-- Made from all migrations; a test compares the two.

create table counterfoil_approval (seq bigint generated always as identity not null, tenant text collate "C" not null, operation_id text collate "C" not null, root_id text collate "C" not null, number bigint not null, state text collate "C" not null, effect text collate "C" not null, effect_version bigint not null, content_digest bytea not null, asker text collate "C" not null, requested_by text collate "C", requested_at bigint not null, decide_by bigint not null, valid_for bigint not null, needs_another bigint not null, edited_by text collate "C", follows text collate "C", followed_by text collate "C", decided_by text collate "C", reason text collate "C", decided_at bigint, valid_until bigint, spent_at bigint, CHECK (((state = 'edited'::text) = (followed_by IS NOT NULL))), CHECK (((state = 'pending'::text) = (decided_at IS NULL))), CHECK ((length(content_digest) = 32)), CHECK ((state = ANY (ARRAY['pending'::text, 'approved'::text, 'rejected'::text, 'edited'::text, 'expired'::text, 'cancelled'::text]))), CHECK ((tenant <> ''::text)), PRIMARY KEY (tenant, seq), UNIQUE (tenant, operation_id, number)) with row level security;

CREATE UNIQUE INDEX counterfoil_approval_pending ON counterfoil_approval USING btree (tenant, operation_id) WHERE (state = 'pending'::text);

CREATE INDEX counterfoil_approval_root ON counterfoil_approval USING btree (tenant, root_id, seq);

CREATE INDEX counterfoil_approval_state ON counterfoil_approval USING btree (tenant, state, seq);

create policy counterfoil_approval_tenant on counterfoil_approval using (((current_setting('counterfoil.tenant'::text, true) = ('='::text || tenant)) OR (current_setting('counterfoil.tenant'::text, true) = '*'::text)));

create table counterfoil_attempt (tenant text collate "C" not null, operation_id text collate "C" not null, attempt bigint not null, fence bigint not null, holder text collate "C" not null, started_at bigint not null, deadline bigint not null, outcome text collate "C" not null, ended_at bigint, error_class text collate "C", error_text text collate "C", CHECK ((outcome = ANY (ARRAY['running'::text, 'succeeded'::text, 'not_sent'::text, 'refused'::text, 'unknown'::text]))), PRIMARY KEY (tenant, operation_id, attempt)) with row level security;

create policy counterfoil_attempt_tenant on counterfoil_attempt using (((current_setting('counterfoil.tenant'::text, true) = ('='::text || tenant)) OR (current_setting('counterfoil.tenant'::text, true) = '*'::text)));

create table counterfoil_audit (seq bigint generated always as identity not null, tenant text collate "C" not null, at bigint not null, who text collate "C" not null, shown text collate "C" not null, role text collate "C", token_id text collate "C", act text collate "C" not null, kind text collate "C" not null, subject text collate "C" not null, state_before text collate "C", state_after text collate "C", reason text collate "C" not null, request_id text collate "C", operation_id text collate "C", CHECK ((who <> ''::text)), PRIMARY KEY (tenant, seq)) with row level security;

CREATE TRIGGER counterfoil_audit_kept BEFORE DELETE OR UPDATE ON counterfoil_audit FOR EACH STATEMENT EXECUTE FUNCTION counterfoil_audit_refuse();

CREATE INDEX counterfoil_audit_operation ON counterfoil_audit USING btree (tenant, operation_id, seq) WHERE (operation_id IS NOT NULL);

CREATE INDEX counterfoil_audit_subject ON counterfoil_audit USING btree (tenant, subject, seq);

create policy counterfoil_audit_tenant on counterfoil_audit using (((current_setting('counterfoil.tenant'::text, true) = ('='::text || tenant)) OR (current_setting('counterfoil.tenant'::text, true) = '*'::text)));

CREATE INDEX counterfoil_audit_who ON counterfoil_audit USING btree (tenant, who, seq);

create table counterfoil_case (seq bigint generated always as identity not null, tenant text collate "C" not null, operation_id text collate "C" not null, kind text collate "C" not null, state text collate "C" not null, version bigint not null default 1, attempt bigint not null, reason text collate "C" not null, opened_at bigint not null, verdict text collate "C", verdict_by text collate "C", verdict_reason text collate "C", verdict_at bigint, CHECK (((state = 'resolved'::text) = (verdict IS NOT NULL))), CHECK ((kind = ANY (ARRAY['unknown_outcome'::text, 'possible_double_effect'::text, 'contradicting_receipts'::text, 'dead_letter'::text]))), CHECK ((state = ANY (ARRAY['open'::text, 'resolved'::text, 'settled'::text]))), CHECK ((verdict = ANY (ARRAY['happened'::text, 'did_not_happen_retry'::text, 'did_not_happen_close'::text, 'noted'::text]))), PRIMARY KEY (tenant, seq)) with row level security;

CREATE UNIQUE INDEX counterfoil_case_open ON counterfoil_case USING btree (tenant, operation_id, kind) WHERE (state = 'open'::text);

CREATE INDEX counterfoil_case_operation ON counterfoil_case USING btree (tenant, operation_id, seq);

CREATE INDEX counterfoil_case_state ON counterfoil_case USING btree (tenant, state, seq);

create policy counterfoil_case_tenant on counterfoil_case using (((current_setting('counterfoil.tenant'::text, true) = ('='::text || tenant)) OR (current_setting('counterfoil.tenant'::text, true) = '*'::text)));

create table counterfoil_channel (tenant text collate "C" not null, thread_id text collate "C" not null, checkpoint_ns text collate "C" not null, channel text collate "C" not null, version text collate "C" not null, type text collate "C" not null, value bytea not null, PRIMARY KEY (tenant, thread_id, checkpoint_ns, channel, version)) with row level security;

create policy counterfoil_channel_tenant on counterfoil_channel using (((current_setting('counterfoil.tenant'::text, true) = ('='::text || tenant)) OR (current_setting('counterfoil.tenant'::text, true) = '*'::text)));

create table counterfoil_checkpoint (seq bigint generated always as identity not null, tenant text collate "C" not null, thread_id text collate "C" not null, checkpoint_ns text collate "C" not null, checkpoint_id text collate "C" not null, parent_id text collate "C", root_id text collate "C", source text collate "C" not null, step bigint not null, run_id text collate "C", type text collate "C" not null, body bytea not null, stored_channels text collate "C" not null, leaning text collate "C" not null, metadata bytea not null, attempt bigint not null, created_at bigint not null, PRIMARY KEY (tenant, seq), UNIQUE (tenant, thread_id, checkpoint_ns, checkpoint_id)) with row level security;

CREATE INDEX counterfoil_checkpoint_newest ON counterfoil_checkpoint USING btree (tenant, thread_id, checkpoint_ns, seq) WHERE (seq > 0);

CREATE INDEX counterfoil_checkpoint_run ON counterfoil_checkpoint USING btree (tenant, run_id) WHERE (run_id IS NOT NULL);

create policy counterfoil_checkpoint_tenant on counterfoil_checkpoint using (((current_setting('counterfoil.tenant'::text, true) = ('='::text || tenant)) OR (current_setting('counterfoil.tenant'::text, true) = '*'::text)));

create table counterfoil_event (seq bigint generated always as identity not null, tenant text collate "C" not null, workflow_id text collate "C" not null, event_id text collate "C" not null, name text collate "C" not null, subject text collate "C", sequence bigint, content_digest bytea not null, payload bytea, state text collate "C" not null, received_at bigint not null, taken_at bigint, CHECK ((length(content_digest) = 32)), CHECK ((state = ANY (ARRAY['kept'::text, 'taken'::text, 'superseded'::text, 'too_late'::text]))), PRIMARY KEY (tenant, seq), UNIQUE (tenant, workflow_id, event_id)) with row level security;

CREATE INDEX counterfoil_event_kept ON counterfoil_event USING btree (tenant, workflow_id, name, seq) WHERE (state = 'kept'::text);

CREATE INDEX counterfoil_event_subject ON counterfoil_event USING btree (tenant, workflow_id, subject, sequence) WHERE (sequence IS NOT NULL);

create policy counterfoil_event_tenant on counterfoil_event using (((current_setting('counterfoil.tenant'::text, true) = ('='::text || tenant)) OR (current_setting('counterfoil.tenant'::text, true) = '*'::text)));

create table counterfoil_evidence (seq bigint generated always as identity not null, tenant text collate "C" not null, operation_id text collate "C" not null, attempt bigint not null, kind text collate "C" not null, answer text collate "C" not null, body bytea, given_by text collate "C" not null, at bigint not null, CHECK ((kind = ANY (ARRAY['reply'::text, 'late_reply'::text, 'lookup'::text, 'verdict'::text]))), PRIMARY KEY (tenant, operation_id, seq)) with row level security;

create policy counterfoil_evidence_tenant on counterfoil_evidence using (((current_setting('counterfoil.tenant'::text, true) = ('='::text || tenant)) OR (current_setting('counterfoil.tenant'::text, true) = '*'::text)));

create table counterfoil_grant (seq bigint generated always as identity not null, tenant text collate "C" not null, operation_id text collate "C" not null, effect text collate "C" not null, identity_digest bytea not null, granted_by text collate "C" not null, granted_at bigint not null, expires_at bigint, revoked_by text collate "C", revoked_at bigint, CHECK (((revoked_by IS NULL) = (revoked_at IS NULL))), CHECK ((length(identity_digest) = 32)), CHECK ((operation_id <> ''::text)), CHECK ((tenant <> ''::text)), PRIMARY KEY (tenant, seq), UNIQUE (tenant, operation_id, effect, identity_digest)) with row level security;

CREATE INDEX counterfoil_grant_newest ON counterfoil_grant USING btree (tenant, seq);

create policy counterfoil_grant_tenant on counterfoil_grant using (((current_setting('counterfoil.tenant'::text, true) = ('='::text || tenant)) OR (current_setting('counterfoil.tenant'::text, true) = '*'::text)));

create table counterfoil_migration (number bigint not null, name text collate "C" not null, digest text collate "C" not null, applied_at bigint not null, PRIMARY KEY (number));

create table counterfoil_mint (tenant text collate "C" not null, thread_id text collate "C" not null, checkpoint_ns text collate "C" not null, name text collate "C" not null, checkpoint_id text collate "C" not null, task_id text collate "C" not null, minted_id text collate "C" not null, at bigint not null, PRIMARY KEY (tenant, thread_id, checkpoint_ns, name, checkpoint_id, task_id)) with row level security;

create policy counterfoil_mint_tenant on counterfoil_mint using (((current_setting('counterfoil.tenant'::text, true) = ('='::text || tenant)) OR (current_setting('counterfoil.tenant'::text, true) = '*'::text)));

create table counterfoil_operation (seq bigint generated always as identity not null, tenant text collate "C" not null, operation_id text collate "C" not null, effect text collate "C" not null, effect_version bigint not null, sender text collate "C" not null, state text collate "C" not null, identity_digest bytea not null, content_digest bytea not null, field_digests bytea not null, payload bytea, provider text collate "C" not null, attempt bigint not null default 0, fence bigint not null default 0, version bigint not null default 1, holder text collate "C", claimed_at bigint not null default 0, lease_until bigint not null default 0, attempt_deadline bigint not null default 0, first_attempt_at bigint not null default 0, receipt bytea, receipt_marker text collate "C", settled_by text collate "C", evidence bytea, error_class text collate "C", error_text text collate "C", request_id text collate "C", workflow_id text collate "C", principal text collate "C", thread_id text collate "C", checkpoint_ns text collate "C", checkpoint_id text collate "C", node text collate "C", task_id text collate "C", run_id text collate "C", trace_id text collate "C", created_at bigint not null, updated_at bigint not null, settled_at bigint, stream text collate "C", due_at bigint not null default 0, expires_at bigint, max_attempts bigint, time_limit bigint not null default 0, lease bigint not null default 0, decide_by bigint, approved_until bigint, CHECK (((holder IS NULL) OR (state = ANY (ARRAY['in_flight'::text, 'succeeded'::text])))), CHECK (((state <> 'in_flight'::text) OR (holder IS NOT NULL))), CHECK (((state <> 'succeeded'::text) OR (receipt IS NOT NULL))), CHECK (((state = ANY (ARRAY['succeeded'::text, 'failed'::text, 'rejected'::text, 'expired'::text, 'cancelled'::text])) = (settled_at IS NOT NULL))), CHECK ((length(content_digest) = 32)), CHECK ((length(identity_digest) = 32)), CHECK ((max_attempts > 0)), CHECK ((operation_id <> ''::text)), CHECK ((sender = ANY (ARRAY['caller'::text, 'dispatcher'::text]))), CHECK ((settled_by = ANY (ARRAY['reply'::text, 'late_reply'::text, 'lookup'::text, 'verdict'::text]))), CHECK ((state = ANY (ARRAY['awaiting_approval'::text, 'pending'::text, 'in_flight'::text, 'unknown'::text, 'parked'::text, 'succeeded'::text, 'failed'::text, 'rejected'::text, 'expired'::text, 'cancelled'::text]))), CHECK ((stream <> ''::text)), CHECK ((tenant <> ''::text)), PRIMARY KEY (tenant, seq), UNIQUE (tenant, operation_id)) with row level security;

CREATE INDEX counterfoil_operation_checkpoint ON counterfoil_operation USING btree (tenant, checkpoint_id) WHERE (checkpoint_id IS NOT NULL);

CREATE INDEX counterfoil_operation_due ON counterfoil_operation USING btree (effect, effect_version, due_at, seq) WHERE ((state = 'pending'::text) AND (sender = 'dispatcher'::text));

CREATE INDEX counterfoil_operation_expiring ON counterfoil_operation USING btree (expires_at) WHERE ((state = 'pending'::text) AND (expires_at IS NOT NULL));

CREATE INDEX counterfoil_operation_permitted ON counterfoil_operation USING btree (approved_until) WHERE ((state = 'pending'::text) AND (approved_until IS NOT NULL));

CREATE INDEX counterfoil_operation_request ON counterfoil_operation USING btree (tenant, request_id) WHERE (request_id IS NOT NULL);

CREATE INDEX counterfoil_operation_run ON counterfoil_operation USING btree (tenant, run_id) WHERE (run_id IS NOT NULL);

CREATE INDEX counterfoil_operation_sending ON counterfoil_operation USING btree (lease_until) WHERE ((state = 'in_flight'::text) AND (sender = 'dispatcher'::text));

CREATE INDEX counterfoil_operation_state ON counterfoil_operation USING btree (tenant, state, seq) WHERE (state <> 'succeeded'::text);

CREATE INDEX counterfoil_operation_stream ON counterfoil_operation USING btree (tenant, stream, seq) WHERE ((stream IS NOT NULL) AND (settled_at IS NULL));

create policy counterfoil_operation_tenant on counterfoil_operation using (((current_setting('counterfoil.tenant'::text, true) = ('='::text || tenant)) OR (current_setting('counterfoil.tenant'::text, true) = '*'::text)));

CREATE INDEX counterfoil_operation_thread ON counterfoil_operation USING btree (tenant, thread_id) WHERE (thread_id IS NOT NULL);

CREATE INDEX counterfoil_operation_trace ON counterfoil_operation USING btree (tenant, trace_id) WHERE (trace_id IS NOT NULL);

CREATE INDEX counterfoil_operation_undecided ON counterfoil_operation USING btree (decide_by) WHERE (state = 'awaiting_approval'::text);

CREATE INDEX counterfoil_operation_unknown ON counterfoil_operation USING btree (due_at) WHERE (state = 'unknown'::text);

CREATE INDEX counterfoil_operation_workflow ON counterfoil_operation USING btree (tenant, workflow_id) WHERE (workflow_id IS NOT NULL);

create table counterfoil_pause (tenant text collate "C" not null, effect text collate "C" not null, stream text collate "C" not null, paused_by text collate "C" not null, reason text collate "C" not null, at bigint not null, PRIMARY KEY (tenant, effect, stream)) with row level security;

create policy counterfoil_pause_of_all on counterfoil_pause for select using (((tenant = ''::text) AND (current_setting('counterfoil.tenant'::text, true) <> ''::text)));

create policy counterfoil_pause_tenant on counterfoil_pause using (((current_setting('counterfoil.tenant'::text, true) = ('='::text || NULLIF(tenant, ''::text))) OR (current_setting('counterfoil.tenant'::text, true) = '*'::text)));

create table counterfoil_tenant (tenant text collate "C" not null, name text collate "C" not null, status text collate "C" not null, changed_by text collate "C" not null, reason text collate "C" not null, created_at bigint not null, updated_at bigint not null, CHECK ((status = ANY (ARRAY['active'::text, 'suspended'::text]))), CHECK ((tenant <> ''::text)), PRIMARY KEY (tenant)) with row level security;

create policy counterfoil_tenant_tenant on counterfoil_tenant using (((current_setting('counterfoil.tenant'::text, true) = ('='::text || tenant)) OR (current_setting('counterfoil.tenant'::text, true) = '*'::text)));

create table counterfoil_thread (tenant text collate "C" not null, thread_id text collate "C" not null, state text collate "C" not null, attempt bigint not null default 0, version bigint not null default 0, holder text collate "C", lease_until bigint not null default 0, parked_on text collate "C", request_id text collate "C", workflow_id text collate "C", principal text collate "C", branch text collate "C", branched_from text collate "C", branched_at text collate "C", plain_thread_id text collate "C", run_id text collate "C", run_attempt bigint, created_at bigint not null, updated_at bigint not null, graph text collate "C", graph_version bigint, status text collate "C", due_at bigint, tries bigint not null default 0, mark bigint not null default 0, waits_for text collate "C", error_class text collate "C", error_text text collate "C", CHECK (((state = 'running'::text) = (holder IS NOT NULL))), CHECK ((state = ANY (ARRAY['idle'::text, 'running'::text, 'parked'::text]))), CHECK ((status = ANY (ARRAY['accepted'::text, 'running'::text, 'waiting'::text, 'parked'::text, 'done'::text, 'failed'::text, 'cancelled'::text]))), CHECK ((thread_id <> ''::text)), PRIMARY KEY (tenant, thread_id)) with row level security;

CREATE INDEX counterfoil_thread_due ON counterfoil_thread USING btree (graph, graph_version, due_at) WHERE (due_at IS NOT NULL);

CREATE INDEX counterfoil_thread_parked ON counterfoil_thread USING btree (graph, graph_version) WHERE (parked_on IS NOT NULL);

CREATE INDEX counterfoil_thread_run ON counterfoil_thread USING btree (tenant, run_id) WHERE (run_id IS NOT NULL);

CREATE INDEX counterfoil_thread_running ON counterfoil_thread USING btree (graph, graph_version, lease_until) WHERE (status = 'running'::text);

create policy counterfoil_thread_tenant on counterfoil_thread using (((current_setting('counterfoil.tenant'::text, true) = ('='::text || tenant)) OR (current_setting('counterfoil.tenant'::text, true) = '*'::text)));

create table counterfoil_token (seq bigint generated always as identity not null, token_id text collate "C" not null, tenant text collate "C" not null, principal text collate "C" not null, shown text collate "C" not null, role text collate "C" not null, scopes text collate "C", secret_digest bytea not null, created_by text collate "C" not null, created_at bigint not null, expires_at bigint, replaced_by text collate "C", revoked_by text collate "C", revoked_at bigint, CHECK (((revoked_by IS NULL) = (revoked_at IS NULL))), CHECK ((length(secret_digest) = 32)), CHECK ((principal <> ''::text)), CHECK ((role = ANY (ARRAY['viewer'::text, 'reviewer'::text, 'operator'::text, 'admin'::text]))), CHECK ((token_id <> ''::text)), PRIMARY KEY (tenant, seq), UNIQUE (token_id)) with row level security;

create policy counterfoil_token_tenant on counterfoil_token using (((current_setting('counterfoil.tenant'::text, true) = ('='::text || tenant)) OR (current_setting('counterfoil.tenant'::text, true) = '*'::text)));

create table counterfoil_wait (tenant text collate "C" not null, thread_id text collate "C" not null, task_id text collate "C" not null, name text collate "C" not null, number bigint not null, checkpoint_ns text collate "C" not null, node text collate "C", event text collate "C", subject text collate "C", state text collate "C" not null, attempt bigint not null, due_at bigint, event_seq bigint, created_at bigint not null, ended_at bigint, CHECK (((state = 'answered'::text) = (event_seq IS NOT NULL))), CHECK (((state = 'open'::text) = (ended_at IS NULL))), CHECK ((state = ANY (ARRAY['open'::text, 'answered'::text, 'timed_out'::text]))), PRIMARY KEY (tenant, thread_id, task_id, name, number)) with row level security;

create policy counterfoil_wait_tenant on counterfoil_wait using (((current_setting('counterfoil.tenant'::text, true) = ('='::text || tenant)) OR (current_setting('counterfoil.tenant'::text, true) = '*'::text)));

CREATE INDEX counterfoil_wait_timers ON counterfoil_wait USING btree (tenant, thread_id, name, due_at) WHERE (event IS NULL);

create table counterfoil_workflow (seq bigint generated always as identity not null, tenant text collate "C" not null, workflow_id text collate "C" not null, shape text collate "C" not null, input_digest bytea not null, field_digests bytea not null, input bytea, created_at bigint not null, CHECK ((length(input_digest) = 32)), CHECK ((tenant <> ''::text)), PRIMARY KEY (tenant, seq), UNIQUE (tenant, workflow_id)) with row level security;

create policy counterfoil_workflow_tenant on counterfoil_workflow using (((current_setting('counterfoil.tenant'::text, true) = ('='::text || tenant)) OR (current_setting('counterfoil.tenant'::text, true) = '*'::text)));

create table counterfoil_write (tenant text collate "C" not null, thread_id text collate "C" not null, checkpoint_ns text collate "C" not null, checkpoint_id text collate "C" not null, task_id text collate "C" not null, idx bigint not null, channel text collate "C" not null, type text collate "C" not null, value bytea not null, task_path text collate "C" not null, attempt bigint not null, PRIMARY KEY (tenant, thread_id, checkpoint_ns, checkpoint_id, task_id, idx)) with row level security;

create policy counterfoil_write_tenant on counterfoil_write using (((current_setting('counterfoil.tenant'::text, true) = ('='::text || tenant)) OR (current_setting('counterfoil.tenant'::text, true) = '*'::text)));
