-- Made from all migrations; a test compares the two.

CREATE TABLE counterfoil_approval (
  seq integer primary key,
  tenant text not null check (tenant <> ''),
  operation_id text not null,
  root_id text not null,
  number integer not null,
  state text not null check (state = 'pending' or state = 'approved' or state = 'rejected' or state = 'edited'
    or state = 'expired' or state = 'cancelled'),
  effect text not null,
  effect_version integer not null,
  content_digest blob not null check (length(content_digest) = 32),
  asker text not null,
  requested_by text,
  requested_at integer not null,
  decide_by integer not null,
  valid_for integer not null,
  needs_another integer not null,
  edited_by text,
  follows text,
  followed_by text,
  decided_by text,
  reason text,
  decided_at integer,
  valid_until integer,
  spent_at integer,
  unique (tenant, operation_id, number),
  check ((state = 'pending') = (decided_at is null)),
  check ((state = 'edited') = (followed_by is not null))
) strict;

CREATE UNIQUE INDEX counterfoil_approval_pending on counterfoil_approval (tenant, operation_id)
  where state = 'pending';

CREATE INDEX counterfoil_approval_root on counterfoil_approval (tenant, root_id, seq);

CREATE INDEX counterfoil_approval_state on counterfoil_approval (tenant, state, seq);

CREATE TABLE counterfoil_attempt (
  tenant text not null,
  operation_id text not null,
  attempt integer not null,
  fence integer not null,
  holder text not null,
  started_at integer not null,
  deadline integer not null,
  outcome text not null check (outcome in ('running', 'succeeded', 'not_sent', 'refused', 'unknown')),
  ended_at integer,
  error_class text,
  error_text text,
  primary key (tenant, operation_id, attempt)
) strict, without rowid;

CREATE TABLE counterfoil_audit (
  seq integer primary key,
  tenant text not null,
  at integer not null,
  who text not null check (who <> ''),
  shown text not null,
  role text,
  token_id text,
  act text not null,
  kind text not null,
  subject text not null,
  state_before text,
  state_after text,
  reason text not null,
  request_id text
, operation_id text) strict;

CREATE TRIGGER counterfoil_audit_delete before delete on counterfoil_audit begin
  select raise(abort, 'an entry of the audit trail is neither changed nor removed');
end;

CREATE INDEX counterfoil_audit_operation on counterfoil_audit (tenant, operation_id, seq)
  where operation_id is not null;

CREATE TRIGGER counterfoil_audit_replace before insert on counterfoil_audit
  when exists (select 1 from counterfoil_audit where seq = new.seq) begin
  select raise(abort, 'an entry of the audit trail is neither changed nor removed');
end;

CREATE INDEX counterfoil_audit_subject on counterfoil_audit (tenant, subject, seq);

CREATE INDEX counterfoil_audit_tenant on counterfoil_audit (tenant, seq);

CREATE TRIGGER counterfoil_audit_update before update on counterfoil_audit begin
  select raise(abort, 'an entry of the audit trail is neither changed nor removed');
end;

CREATE INDEX counterfoil_audit_who on counterfoil_audit (tenant, who, seq);

CREATE TABLE counterfoil_case (
  seq integer primary key,
  tenant text not null,
  operation_id text not null,
  kind text not null check (kind in ('unknown_outcome', 'possible_double_effect', 'contradicting_receipts',
    'dead_letter')),
  state text not null check (state in ('open', 'resolved', 'settled')),
  version integer not null default 1,
  attempt integer not null,
  reason text not null,
  opened_at integer not null,
  verdict text check (verdict in ('happened', 'did_not_happen_retry', 'did_not_happen_close', 'noted')),
  verdict_by text,
  verdict_reason text,
  verdict_at integer,
  check ((state = 'resolved') = (verdict is not null))
) strict;

CREATE UNIQUE INDEX counterfoil_case_open on counterfoil_case (tenant, operation_id, kind) where state = 'open';

CREATE INDEX counterfoil_case_operation on counterfoil_case (tenant, operation_id, seq);

CREATE INDEX counterfoil_case_state on counterfoil_case (tenant, state, seq);

CREATE TABLE counterfoil_channel (
  tenant text not null,
  thread_id text not null,
  checkpoint_ns text not null,
  channel text not null,
  version text not null,
  type text not null,
  value blob not null,
  primary key (tenant, thread_id, checkpoint_ns, channel, version)
) strict, without rowid;

CREATE TABLE counterfoil_checkpoint (
  seq integer primary key,
  tenant text not null,
  thread_id text not null,
  checkpoint_ns text not null,
  checkpoint_id text not null,
  parent_id text,
  root_id text,
  source text not null,
  step integer not null,
  run_id text,
  type text not null,
  body blob not null,
  stored_channels text not null,
  leaning text not null,
  metadata blob not null,
  attempt integer not null,
  created_at integer not null,
  unique (tenant, thread_id, checkpoint_ns, checkpoint_id)
) strict;

CREATE INDEX counterfoil_checkpoint_newest on counterfoil_checkpoint (tenant, thread_id, checkpoint_ns, seq);

CREATE INDEX counterfoil_checkpoint_run on counterfoil_checkpoint (tenant, run_id)
  where run_id is not null;

CREATE TABLE counterfoil_event (
  seq integer primary key,
  tenant text not null,
  workflow_id text not null,
  event_id text not null,
  name text not null,
  subject text,
  sequence integer,
  content_digest blob not null check (length(content_digest) = 32),
  payload blob,
  state text not null check (state = 'kept' or state = 'taken' or state = 'superseded' or state = 'too_late'),
  received_at integer not null,
  taken_at integer,
  unique (tenant, workflow_id, event_id)
) strict;

CREATE INDEX counterfoil_event_kept on counterfoil_event (tenant, workflow_id, name, seq)
  where state = 'kept';

CREATE INDEX counterfoil_event_subject on counterfoil_event (tenant, workflow_id, subject, sequence)
  where sequence is not null;

CREATE TABLE counterfoil_evidence (
  seq integer primary key,
  tenant text not null,
  operation_id text not null,
  attempt integer not null,
  kind text not null check (kind in ('reply', 'late_reply', 'lookup', 'verdict')),
  answer text not null,
  body blob,
  given_by text not null,
  at integer not null
) strict;

CREATE INDEX counterfoil_evidence_operation on counterfoil_evidence (tenant, operation_id, seq);

CREATE TABLE counterfoil_grant (
  seq integer primary key,
  tenant text not null check (tenant <> ''),
  operation_id text not null check (operation_id <> ''),
  effect text not null,
  identity_digest blob not null check (length(identity_digest) = 32),
  granted_by text not null,
  granted_at integer not null,
  expires_at integer,
  revoked_by text,
  revoked_at integer,
  unique (tenant, operation_id, effect, identity_digest),
  check ((revoked_by is null) = (revoked_at is null))
) strict;

CREATE INDEX counterfoil_grant_newest on counterfoil_grant (tenant, seq);

CREATE TABLE counterfoil_migration (
  number integer primary key,
  name text not null,
  digest text not null,
  applied_at integer not null
) strict;

CREATE TABLE counterfoil_mint (
  tenant text not null,
  thread_id text not null,
  checkpoint_ns text not null,
  name text not null,
  checkpoint_id text not null,
  task_id text not null,
  minted_id text not null,
  at integer not null,
  primary key (tenant, thread_id, checkpoint_ns, name, checkpoint_id, task_id)
) strict, without rowid;

CREATE TABLE counterfoil_operation (
  seq integer primary key,
  tenant text not null check (tenant <> ''),
  operation_id text not null check (operation_id <> ''),
  effect text not null,
  effect_version integer not null,
  sender text not null check (sender = 'caller' or sender = 'dispatcher'),
  state text not null check (state = 'awaiting_approval' or state = 'pending' or state = 'in_flight'
    or state = 'unknown' or state = 'parked' or state = 'succeeded' or state = 'failed' or state = 'rejected'
    or state = 'expired' or state = 'cancelled'),
  identity_digest blob not null check (length(identity_digest) = 32),
  content_digest blob not null check (length(content_digest) = 32),
  field_digests blob not null,
  payload blob,
  provider text not null,
  attempt integer not null default 0,
  fence integer not null default 0,
  version integer not null default 1,
  holder text,
  claimed_at integer not null default 0,
  lease_until integer not null default 0,
  attempt_deadline integer not null default 0,
  first_attempt_at integer not null default 0,
  receipt blob,
  receipt_marker text,
  settled_by text check (settled_by = 'reply' or settled_by = 'late_reply' or settled_by = 'lookup'
    or settled_by = 'verdict'),
  evidence blob,
  error_class text,
  error_text text,
  request_id text,
  workflow_id text,
  principal text,
  thread_id text,
  checkpoint_ns text,
  checkpoint_id text,
  node text,
  task_id text,
  run_id text,
  trace_id text,
  created_at integer not null,
  updated_at integer not null,
  settled_at integer, stream text check (stream <> ''), due_at integer not null default 0, expires_at integer, max_attempts integer check (max_attempts > 0), time_limit integer not null default 0, lease integer not null default 0, decide_by integer, approved_until integer,
  unique (tenant, operation_id),
  check (state <> 'in_flight' or holder is not null),
  check (holder is null or state = 'in_flight' or state = 'succeeded'),
  check ((state = 'succeeded' or state = 'failed' or state = 'rejected' or state = 'expired'
    or state = 'cancelled') = (settled_at is not null)),
  check (state <> 'succeeded' or receipt is not null)
) strict;

CREATE INDEX counterfoil_operation_checkpoint on counterfoil_operation (tenant, checkpoint_id)
  where checkpoint_id is not null;

CREATE INDEX counterfoil_operation_due on counterfoil_operation (effect, effect_version, due_at, seq)
  where state = 'pending' and sender = 'dispatcher';

CREATE INDEX counterfoil_operation_expiring on counterfoil_operation (expires_at)
  where state = 'pending' and expires_at is not null;

CREATE INDEX counterfoil_operation_newest on counterfoil_operation (tenant, seq);

CREATE INDEX counterfoil_operation_permitted on counterfoil_operation (approved_until)
  where state = 'pending' and approved_until is not null;

CREATE INDEX counterfoil_operation_request on counterfoil_operation (tenant, request_id)
  where request_id is not null;

CREATE INDEX counterfoil_operation_run on counterfoil_operation (tenant, run_id)
  where run_id is not null;

CREATE INDEX counterfoil_operation_sending on counterfoil_operation (lease_until)
  where state = 'in_flight' and sender = 'dispatcher';

CREATE INDEX counterfoil_operation_state on counterfoil_operation (tenant, state, seq)
  where state <> 'succeeded';

CREATE INDEX counterfoil_operation_stream on counterfoil_operation (tenant, stream, seq)
  where stream is not null and settled_at is null;

CREATE INDEX counterfoil_operation_thread on counterfoil_operation (tenant, thread_id)
  where thread_id is not null;

CREATE INDEX counterfoil_operation_trace on counterfoil_operation (tenant, trace_id)
  where trace_id is not null;

CREATE INDEX counterfoil_operation_undecided on counterfoil_operation (decide_by)
  where state = 'awaiting_approval';

CREATE INDEX counterfoil_operation_unknown on counterfoil_operation (due_at)
  where state = 'unknown';

CREATE INDEX counterfoil_operation_workflow on counterfoil_operation (tenant, workflow_id)
  where workflow_id is not null;

CREATE TABLE counterfoil_pause (
  tenant text not null,
  effect text not null,
  stream text not null,
  paused_by text not null,
  reason text not null,
  at integer not null,
  primary key (tenant, effect, stream)
) strict, without rowid;

CREATE TABLE counterfoil_tenant (
  tenant text not null primary key check (tenant <> ''),
  name text not null,
  status text not null check (status = 'active' or status = 'suspended'),
  changed_by text not null,
  reason text not null,
  created_at integer not null,
  updated_at integer not null
) strict, without rowid;

CREATE TABLE counterfoil_thread (
  tenant text not null,
  thread_id text not null check (thread_id <> ''),
  state text not null check (state = 'idle' or state = 'running' or state = 'parked'),
  attempt integer not null default 0,
  version integer not null default 0,
  holder text,
  lease_until integer not null default 0,
  parked_on text,
  request_id text,
  workflow_id text,
  principal text,
  branch text,
  branched_from text,
  branched_at text,
  plain_thread_id text,
  run_id text,
  run_attempt integer,
  created_at integer not null,
  updated_at integer not null, graph text, graph_version integer, status text check (status = 'accepted' or status = 'running'
  or status = 'waiting' or status = 'parked' or status = 'done' or status = 'failed' or status = 'cancelled'), due_at integer, tries integer not null default 0, mark integer not null default 0, waits_for text, error_class text, error_text text,
  primary key (tenant, thread_id),
  check ((state = 'running') = (holder is not null))
) strict, without rowid;

CREATE INDEX counterfoil_thread_due on counterfoil_thread (graph, graph_version, due_at)
  where due_at is not null;

CREATE INDEX counterfoil_thread_parked on counterfoil_thread (graph, graph_version)
  where parked_on is not null;

CREATE INDEX counterfoil_thread_run on counterfoil_thread (tenant, run_id)
  where run_id is not null;

CREATE INDEX counterfoil_thread_running on counterfoil_thread (graph, graph_version, lease_until)
  where status = 'running';

CREATE TABLE counterfoil_token (
  seq integer primary key,
  token_id text not null unique check (token_id <> ''),
  tenant text not null,
  principal text not null check (principal <> ''),
  shown text not null,
  role text not null check (role = 'viewer' or role = 'reviewer' or role = 'operator' or role = 'admin'),
  scopes text,
  secret_digest blob not null check (length(secret_digest) = 32),
  created_by text not null,
  created_at integer not null,
  expires_at integer,
  replaced_by text,
  revoked_by text,
  revoked_at integer,
  check ((revoked_by is null) = (revoked_at is null))
) strict;

CREATE INDEX counterfoil_token_tenant on counterfoil_token (tenant, seq);

CREATE TABLE counterfoil_wait (
  tenant text not null,
  thread_id text not null,
  task_id text not null,
  name text not null,
  number integer not null,
  checkpoint_ns text not null,
  node text,
  event text,
  subject text,
  state text not null check (state = 'open' or state = 'answered' or state = 'timed_out'),
  attempt integer not null,
  due_at integer,
  event_seq integer,
  created_at integer not null,
  ended_at integer,
  primary key (tenant, thread_id, task_id, name, number),
  check ((state = 'open') = (ended_at is null)),
  check ((state = 'answered') = (event_seq is not null))
) strict, without rowid;

CREATE INDEX counterfoil_wait_timers on counterfoil_wait (tenant, thread_id, name, due_at)
  where event is null;

CREATE TABLE counterfoil_workflow (
  seq integer primary key,
  tenant text not null check (tenant <> ''),
  workflow_id text not null,
  shape text not null,
  input_digest blob not null check (length(input_digest) = 32),
  field_digests blob not null,
  input blob,
  created_at integer not null,
  unique (tenant, workflow_id)
) strict;

CREATE INDEX counterfoil_workflow_newest on counterfoil_workflow (tenant, seq);

CREATE TABLE counterfoil_write (
  tenant text not null,
  thread_id text not null,
  checkpoint_ns text not null,
  checkpoint_id text not null,
  task_id text not null,
  idx integer not null,
  channel text not null,
  type text not null,
  value blob not null,
  task_path text not null,
  attempt integer not null,
  primary key (tenant, thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
) strict, without rowid;
