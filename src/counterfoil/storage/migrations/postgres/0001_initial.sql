-- Operations (ledger and outbox in one row), attempts, evidence, cases, threads, checkpoints, minted ids.
-- Times are integer milliseconds, UTC; digests are 32 raw bytes.

create table counterfoil_operation (
  seq bigint generated always as identity,
  tenant text collate "C" not null check (tenant <> ''),
  operation_id text collate "C" not null check (operation_id <> ''),
  effect text collate "C" not null,
  effect_version bigint not null,
  sender text collate "C" not null check (sender in ('caller', 'dispatcher')),
  state text collate "C" not null check (state in ('awaiting_approval', 'pending', 'in_flight', 'unknown', 'parked',
    'succeeded', 'failed', 'rejected', 'expired', 'cancelled')),
  identity_digest bytea not null check (length(identity_digest) = 32),
  content_digest bytea not null check (length(content_digest) = 32),
  field_digests bytea not null,
  payload bytea,
  provider text collate "C" not null,
  attempt bigint not null default 0,
  fence bigint not null default 0,
  version bigint not null default 1,
  holder text collate "C",
  claimed_at bigint not null default 0,
  lease_until bigint not null default 0,
  attempt_deadline bigint not null default 0,
  first_attempt_at bigint not null default 0,
  receipt bytea,
  receipt_marker text collate "C",
  settled_by text collate "C" check (settled_by in ('reply', 'late_reply', 'lookup', 'verdict')),
  evidence bytea,
  error_class text collate "C",
  error_text text collate "C",
  request_id text collate "C",
  workflow_id text collate "C",
  principal text collate "C",
  thread_id text collate "C",
  checkpoint_ns text collate "C",
  checkpoint_id text collate "C",
  node text collate "C",
  task_id text collate "C",
  run_id text collate "C",
  trace_id text collate "C",
  created_at bigint not null,
  updated_at bigint not null,
  settled_at bigint,
  primary key (tenant, seq), -- not of seq alone, which planners walk to find one tenant's rows among everybody's
  unique (tenant, operation_id),
  check (state <> 'in_flight' or holder is not null),
  check (holder is null or state in ('in_flight', 'succeeded')),
  check ((state in ('succeeded', 'failed', 'rejected', 'expired', 'cancelled')) = (settled_at is not null)),
  check (state <> 'succeeded' or receipt is not null)
);

create index counterfoil_operation_state on counterfoil_operation (tenant, state, seq)
  where state <> 'succeeded';
create index counterfoil_operation_request on counterfoil_operation (tenant, request_id)
  where request_id is not null;
create index counterfoil_operation_thread on counterfoil_operation (tenant, thread_id)
  where thread_id is not null;
create index counterfoil_operation_workflow on counterfoil_operation (tenant, workflow_id)
  where workflow_id is not null;
create index counterfoil_operation_checkpoint on counterfoil_operation (tenant, checkpoint_id)
  where checkpoint_id is not null;
create index counterfoil_operation_run on counterfoil_operation (tenant, run_id)
  where run_id is not null;
create index counterfoil_operation_trace on counterfoil_operation (tenant, trace_id)
  where trace_id is not null;

create table counterfoil_attempt (
  tenant text collate "C" not null,
  operation_id text collate "C" not null,
  attempt bigint not null,
  fence bigint not null,
  holder text collate "C" not null,
  started_at bigint not null,
  deadline bigint not null,
  outcome text collate "C" not null check (outcome in ('running', 'succeeded', 'not_sent', 'refused', 'unknown')),
  ended_at bigint,
  error_class text collate "C",
  error_text text collate "C",
  primary key (tenant, operation_id, attempt)
);

create table counterfoil_evidence (
  seq bigint generated always as identity,
  tenant text collate "C" not null,
  operation_id text collate "C" not null,
  attempt bigint not null,
  kind text collate "C" not null check (kind in ('reply', 'late_reply', 'lookup', 'verdict')),
  answer text collate "C" not null,
  body bytea,
  given_by text collate "C" not null,
  at bigint not null,
  primary key (tenant, operation_id, seq)
);

create table counterfoil_case (
  seq bigint generated always as identity,
  tenant text collate "C" not null,
  operation_id text collate "C" not null,
  kind text collate "C" not null check (kind in ('unknown_outcome', 'possible_double_effect', 'contradicting_receipts',
    'dead_letter')),
  state text collate "C" not null check (state in ('open', 'resolved', 'settled')),
  version bigint not null default 1,
  attempt bigint not null,
  reason text collate "C" not null,
  opened_at bigint not null,
  verdict text collate "C" check (verdict in ('happened', 'did_not_happen_retry', 'did_not_happen_close', 'noted')),
  verdict_by text collate "C",
  verdict_reason text collate "C",
  verdict_at bigint,
  primary key (tenant, seq),
  check ((state = 'resolved') = (verdict is not null))
);

create unique index counterfoil_case_open on counterfoil_case (tenant, operation_id, kind) where state = 'open';
create index counterfoil_case_operation on counterfoil_case (tenant, operation_id, seq);
create index counterfoil_case_state on counterfoil_case (tenant, state, seq);

create table counterfoil_thread (
  tenant text collate "C" not null,
  thread_id text collate "C" not null check (thread_id <> ''),
  state text collate "C" not null check (state in ('idle', 'running', 'parked')),
  attempt bigint not null default 0,
  version bigint not null default 0,
  holder text collate "C",
  lease_until bigint not null default 0,
  parked_on text collate "C",
  request_id text collate "C",
  workflow_id text collate "C",
  principal text collate "C",
  branch text collate "C",
  branched_from text collate "C",
  branched_at text collate "C",
  plain_thread_id text collate "C",
  run_id text collate "C",
  run_attempt bigint,
  created_at bigint not null,
  updated_at bigint not null,
  primary key (tenant, thread_id),
  check ((state = 'running') = (holder is not null))
);

create table counterfoil_checkpoint (
  seq bigint generated always as identity,
  tenant text collate "C" not null,
  thread_id text collate "C" not null,
  checkpoint_ns text collate "C" not null,
  checkpoint_id text collate "C" not null,
  parent_id text collate "C",
  root_id text collate "C",
  source text collate "C" not null,
  step bigint not null,
  run_id text collate "C",
  type text collate "C" not null,
  body bytea not null,
  stored_channels text collate "C" not null,
  leaning text collate "C" not null,
  metadata bytea not null,
  attempt bigint not null,
  created_at bigint not null,
  primary key (tenant, seq),
  unique (tenant, thread_id, checkpoint_ns, checkpoint_id)
);

-- The condition is always true, and keeps planners from this index where a checkpoint is read by its id: they take most
-- threads for short, and would read a long one through.
create index counterfoil_checkpoint_newest on counterfoil_checkpoint (tenant, thread_id, checkpoint_ns, seq)
  where seq > 0;
create index counterfoil_checkpoint_run on counterfoil_checkpoint (tenant, run_id)
  where run_id is not null;

create table counterfoil_channel (
  tenant text collate "C" not null,
  thread_id text collate "C" not null,
  checkpoint_ns text collate "C" not null,
  channel text collate "C" not null,
  version text collate "C" not null,
  type text collate "C" not null,
  value bytea not null,
  primary key (tenant, thread_id, checkpoint_ns, channel, version)
);

create table counterfoil_write (
  tenant text collate "C" not null,
  thread_id text collate "C" not null,
  checkpoint_ns text collate "C" not null,
  checkpoint_id text collate "C" not null,
  task_id text collate "C" not null,
  idx bigint not null,
  channel text collate "C" not null,
  type text collate "C" not null,
  value bytea not null,
  task_path text collate "C" not null,
  attempt bigint not null,
  primary key (tenant, thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
);

create table counterfoil_mint (
  tenant text collate "C" not null,
  thread_id text collate "C" not null,
  checkpoint_ns text collate "C" not null,
  name text collate "C" not null,
  checkpoint_id text collate "C" not null,
  task_id text collate "C" not null,
  minted_id text collate "C" not null,
  at bigint not null,
  primary key (tenant, thread_id, checkpoint_ns, name, checkpoint_id, task_id)
);
