-- Workflows: a thread that is started, waits, and is entered again by a worker; what its steps wait for, and its inbox.
-- What moves with a workflow stands in its thread's row, so that a claim and a checkpoint move it too.

alter table counterfoil_thread add column graph text;
alter table counterfoil_thread add column graph_version integer;
alter table counterfoil_thread add column status text check (status = 'accepted' or status = 'running'
  or status = 'waiting' or status = 'parked' or status = 'done' or status = 'failed' or status = 'cancelled');
alter table counterfoil_thread add column due_at integer;
alter table counterfoil_thread add column tries integer not null default 0;
alter table counterfoil_thread add column mark integer not null default 0;
alter table counterfoil_thread add column waits_for text;
alter table counterfoil_thread add column error_class text;
alter table counterfoil_thread add column error_text text;

create index counterfoil_thread_due on counterfoil_thread (graph, graph_version, due_at)
  where due_at is not null;
create index counterfoil_thread_running on counterfoil_thread (graph, graph_version, lease_until)
  where status = 'running';
create index counterfoil_thread_parked on counterfoil_thread (graph, graph_version)
  where parked_on is not null;

create table counterfoil_workflow (
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

create index counterfoil_workflow_newest on counterfoil_workflow (tenant, seq);

create table counterfoil_wait (
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

create index counterfoil_wait_timers on counterfoil_wait (tenant, thread_id, name, due_at)
  where event is null;

create table counterfoil_event (
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

create index counterfoil_event_kept on counterfoil_event (tenant, workflow_id, name, seq)
  where state = 'kept';
create index counterfoil_event_subject on counterfoil_event (tenant, workflow_id, subject, sequence)
  where sequence is not null;
