-- Workflows: a thread that is started, waits, and is entered again by a worker; what its steps wait for, and its inbox.
-- What moves with a workflow stands in its thread's row, so that a claim and a checkpoint move it too.

alter table counterfoil_thread
  add column graph text collate "C",
  add column graph_version bigint,
  add column status text collate "C" check (status in ('accepted', 'running', 'waiting', 'parked', 'done', 'failed',
    'cancelled')),
  add column due_at bigint,
  add column tries bigint not null default 0,
  add column mark bigint not null default 0,
  add column waits_for text collate "C",
  add column error_class text collate "C",
  add column error_text text collate "C";

create index counterfoil_thread_due on counterfoil_thread (graph, graph_version, due_at)
  where due_at is not null;
create index counterfoil_thread_running on counterfoil_thread (graph, graph_version, lease_until)
  where status = 'running';
create index counterfoil_thread_parked on counterfoil_thread (graph, graph_version)
  where parked_on is not null;

create table counterfoil_workflow (
  seq bigint generated always as identity,
  tenant text collate "C" not null check (tenant <> ''),
  workflow_id text collate "C" not null,
  shape text collate "C" not null,
  input_digest bytea not null check (length(input_digest) = 32),
  field_digests bytea not null,
  input bytea,
  created_at bigint not null,
  primary key (tenant, seq),
  unique (tenant, workflow_id)
);

create table counterfoil_wait (
  tenant text collate "C" not null,
  thread_id text collate "C" not null,
  task_id text collate "C" not null,
  name text collate "C" not null,
  number bigint not null,
  checkpoint_ns text collate "C" not null,
  node text collate "C",
  event text collate "C",
  subject text collate "C",
  state text collate "C" not null check (state in ('open', 'answered', 'timed_out')),
  attempt bigint not null,
  due_at bigint,
  event_seq bigint,
  created_at bigint not null,
  ended_at bigint,
  primary key (tenant, thread_id, task_id, name, number),
  check ((state = 'open') = (ended_at is null)),
  check ((state = 'answered') = (event_seq is not null))
);

create index counterfoil_wait_timers on counterfoil_wait (tenant, thread_id, name, due_at)
  where event is null;

create table counterfoil_event (
  seq bigint generated always as identity,
  tenant text collate "C" not null,
  workflow_id text collate "C" not null,
  event_id text collate "C" not null,
  name text collate "C" not null,
  subject text collate "C",
  sequence bigint,
  content_digest bytea not null check (length(content_digest) = 32),
  payload bytea,
  state text collate "C" not null check (state in ('kept', 'taken', 'superseded', 'too_late')),
  received_at bigint not null,
  taken_at bigint,
  primary key (tenant, seq),
  unique (tenant, workflow_id, event_id)
);

create index counterfoil_event_kept on counterfoil_event (tenant, workflow_id, name, seq)
  where state = 'kept';
create index counterfoil_event_subject on counterfoil_event (tenant, workflow_id, subject, sequence)
  where sequence is not null;
