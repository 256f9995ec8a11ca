-- A ledger and a saver as large as after months of work, made by the database itself in seconds.
--
-- One tenant has half of everything and one has next to nothing, since plans fail at either end. Most operations are
-- done; most threads have five checkpoints, one has ten thousand. Nothing of it is analyzed before a test says so.

create function pg_temp.tenant(n bigint) returns text language sql immutable as $$
  select case when n % 2 = 0 then 'tenant-large' when n % 997 = 1 then 'tenant-small' else 'tenant-' || n % 18 end
$$;

create function pg_temp.state(n bigint) returns text language sql immutable as $$
  select case
    when n % 200 = 7 or n % 200 = 8 then 'unknown'
    when n % 500 = 9 then 'parked'
    when n % 1000 = 10 then 'in_flight'
    when n % 500 = 12 then 'pending'
    when n % 250 = 14 then 'failed'
    else 'succeeded'
  end
$$;

do $$
declare
  name text;
begin
  for name in select tablename from pg_tables where tablename like 'counterfoil\_%' loop
    execute format('alter table %I set (autovacuum_enabled = false)', name);
  end loop;
end
$$;

insert into counterfoil_operation (tenant, operation_id, effect, effect_version, sender, state, identity_digest,
  content_digest, field_digests, payload, provider, attempt, fence, holder, receipt, receipt_marker, request_id,
  workflow_id, thread_id, checkpoint_ns, checkpoint_id, node, task_id, run_id, trace_id, created_at, updated_at,
  settled_at)
select pg_temp.tenant(n), 'o-' || n, 'effect-' || n / 7 % 12, 1, 'caller', state,
  sha256(cast('i' || n as bytea)), sha256(cast('c' || n as bytea)), sha256(cast('f' || n as bytea)),
  case when state = 'succeeded' then null else cast('x' as bytea) end, '{"name":"api"}', 1, 1,
  case when state = 'in_flight' then 'host/1' end,
  case when state = 'succeeded' then cast('{"id": 1}' as bytea) end, case when n % 1000 = 4 then 'unreadable' end,
  'r-' || n / 3, 'w-' || n / 10, 't-' || n / 10, '', 'c-' || n / 2, 'node', 'task', 'run-' || n / 10,
  'trace-' || n / 3, n, n, case when state in ('succeeded', 'failed') then n end
from (select n, pg_temp.state(n) as state from generate_series(1, 100000) n) made;

insert into counterfoil_attempt (tenant, operation_id, attempt, fence, holder, started_at, deadline, outcome)
select pg_temp.tenant(n), 'o-' || n, 1, 1, 'host/1', n, n, 'unknown'
from generate_series(0, 100000, 8) n;

insert into counterfoil_evidence (tenant, operation_id, attempt, kind, answer, body, given_by, at)
select pg_temp.tenant(n), 'o-' || n, 1, 'late_reply', 'late', 'x', 'host/1', n
from generate_series(0, 100000, 8) n;

insert into counterfoil_case (tenant, operation_id, kind, state, attempt, reason, opened_at)
select pg_temp.tenant(n), 'o-' || n, 'unknown_outcome', case when n % 200 = 8 then 'open' else 'settled' end, 1, 'lost', n
from generate_series(0, 100000, 8) n;

insert into counterfoil_thread (tenant, thread_id, state, attempt, holder, created_at, updated_at)
select pg_temp.tenant(n), 't-' || n, case when n % 100 = 0 then 'running' else 'idle' end, 1,
  case when n % 100 = 0 then 'host/1' end, n, n
from generate_series(1, 10000) n;

insert into counterfoil_checkpoint (tenant, thread_id, checkpoint_ns, checkpoint_id, parent_id, source, step, run_id,
  type, body, stored_channels, leaning, metadata, attempt, created_at)
select pg_temp.tenant(n), 't-' || n, '', 'c-' || 5 * n + step, case when step > 0 then 'c-' || 5 * n + step - 1 end,
  'loop', step, 'run-' || n, 'msgpack', cast(repeat('x', 300) as bytea),
  '{"messages":"' || 5 * n + step || '","count":"' || 5 * n + step || '"}', '[]', '{}', 1, n
from generate_series(1, 8000) n
cross join generate_series(0, 4) step;

insert into counterfoil_checkpoint (tenant, thread_id, checkpoint_ns, checkpoint_id, parent_id, source, step, run_id,
  type, body, stored_channels, leaning, metadata, attempt, created_at)
select 'tenant-large', 't-long', '', 'l-' || n, case when n > 1 then 'l-' || n - 1 end,
  'loop', n, 'run-long', 'msgpack', cast(repeat('x', 300) as bytea),
  '{"messages":"' || n || '","count":"' || n || '"}', '[]', '{}', 1, n
from generate_series(1, 10000) n;

insert into counterfoil_channel (tenant, thread_id, checkpoint_ns, channel, version, type, value)
select tenant, thread_id, checkpoint_ns, channel, substr(checkpoint_id, 3), 'msgpack', cast(repeat('y', 100) as bytea)
from counterfoil_checkpoint
cross join (values ('messages'), ('count')) given (channel);

insert into counterfoil_write (tenant, thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, value,
  task_path, attempt)
select tenant, thread_id, checkpoint_ns, checkpoint_id, 'task', idx, 'messages', 'msgpack',
  cast(repeat('z', 100) as bytea), '', 1
from counterfoil_checkpoint
cross join generate_series(0, 1) idx;

insert into counterfoil_mint (tenant, thread_id, checkpoint_ns, name, checkpoint_id, task_id, minted_id, at)
select pg_temp.tenant(n), 't-' || n, '', 'order', 'c-' || n * 5, 'task', 'm-' || n, n
from generate_series(1, 8000) n;

update counterfoil_thread
set graph = 'hiring',
  graph_version = 1,
  status = case when state = 'running' then 'running' when seq % 50 = 0 then 'waiting' else 'done' end,
  due_at = case when state <> 'running' and seq % 50 = 0 then seq end,
  workflow_id = thread_id
from (select tenant owner, thread_id thread, row_number() over (order by thread_id) as seq from counterfoil_thread) numbered
where tenant = owner
  and thread_id = thread;

insert into counterfoil_workflow (tenant, workflow_id, shape, input_digest, field_digests, input, created_at)
select tenant, thread_id, '{}', cast(repeat('i', 32) as bytea), 'x', 'x', 1
from counterfoil_thread;

insert into counterfoil_wait (tenant, thread_id, task_id, name, number, checkpoint_ns, event, state, attempt, created_at)
select tenant, thread_id, 'task-' || n, 'feedback', 1, '', 'feedback', 'open', n, n
from counterfoil_thread
cross join generate_series(1, 3) n;

insert into counterfoil_event (tenant, workflow_id, event_id, name, subject, sequence, content_digest, payload, state,
  received_at)
select tenant, thread_id, 'e-' || n, 'feedback', 's-1', n, cast(repeat('c', 32) as bytea), 'x',
  case when n = 3 then 'kept' else 'superseded' end, n
from counterfoil_thread
cross join generate_series(1, 3) n;

insert into counterfoil_tenant (tenant, name, status, changed_by, reason, created_at, updated_at)
select 'tenant-' || n, 'Tenant ' || n, 'active', 'eve', '', n, n
from generate_series(0, 2000) n;

insert into counterfoil_token (token_id, tenant, principal, shown, role, secret_digest, created_by, created_at)
select 'k-' || n, pg_temp.tenant(n), 'p-' || n % 50, 'P-' || n % 50, 'viewer', cast(repeat('s', 32) as bytea), 'eve', n
from generate_series(1, 10000) n;

insert into counterfoil_audit (tenant, at, who, shown, role, act, kind, subject, reason, operation_id)
select pg_temp.tenant(n), n, 'p-' || n % 50, 'P-' || n % 50, 'operator', 'requeue', 'operation', 'o-' || n / 3, 'why',
  case when n % 3 = 0 then 'o-' || n / 5 end
from generate_series(1, 50000) n;

insert into counterfoil_approval (tenant, operation_id, root_id, number, state, effect, effect_version, content_digest,
  asker, requested_by, requested_at, decide_by, valid_for, needs_another, decided_by, reason, decided_at)
select pg_temp.tenant(n), 'o-' || n, 'o-' || n, 1, case when n % 50 = 0 then 'pending' else 'rejected' end, 'effect-1', 1,
  cast(repeat('c', 32) as bytea), 'task', 'eve', n, n + 1000, 1000, 0, case when n % 50 > 0 then 'ann' end,
  case when n % 50 > 0 then 'why' end, case when n % 50 > 0 then n end
from generate_series(1, 50000) n;

insert into counterfoil_grant (tenant, operation_id, effect, identity_digest, granted_by, granted_at)
select pg_temp.tenant(n), 'o-' || n, 'effect-1', cast(repeat('i', 32) as bytea), 'eve', n
from generate_series(1, 50000) n;
