-- Operations that a dispatcher sends: when, in which order, how often, and until when; and what is paused.
-- Claims and look-ups find rows by what is due, never by remembering the highest number. Threads are found by their run.

alter table counterfoil_operation
  add column stream text collate "C" check (stream <> ''),
  add column due_at bigint not null default 0,
  add column expires_at bigint,
  add column max_attempts bigint check (max_attempts > 0),
  add column time_limit bigint not null default 0,
  add column lease bigint not null default 0;

create index counterfoil_operation_due on counterfoil_operation (effect, effect_version, due_at, seq)
  where state = 'pending' and sender = 'dispatcher';
create index counterfoil_operation_sending on counterfoil_operation (lease_until)
  where state = 'in_flight' and sender = 'dispatcher';
create index counterfoil_operation_unknown on counterfoil_operation (due_at)
  where state = 'unknown';
create index counterfoil_operation_stream on counterfoil_operation (tenant, stream, seq)
  where stream is not null and settled_at is null;
create index counterfoil_operation_expiring on counterfoil_operation (expires_at)
  where state = 'pending' and expires_at is not null;

create index counterfoil_thread_run on counterfoil_thread (tenant, run_id)
  where run_id is not null;

create table counterfoil_pause (
  tenant text collate "C" not null,
  effect text collate "C" not null,
  stream text collate "C" not null,
  paused_by text collate "C" not null,
  reason text collate "C" not null,
  at bigint not null,
  primary key (tenant, effect, stream)
);
