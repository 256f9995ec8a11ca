-- name: insert_claimed_thread
-- Begin a thread that nobody has run yet, already claimed.
-- differs: others do not see the row before it is committed. So what a plain graph is just storing in the thread is waited
-- for, and what it would store from now on waits until it can see who owns the thread.
insert into counterfoil_thread (tenant, thread_id, state, attempt, version, holder, lease_until, request_id,
  workflow_id, principal, run_id, run_attempt, created_at, updated_at)
select :tenant, :thread_id, :state, 1, 1, :holder, {now} + :lease, :request_id,
  :workflow_id, :principal, :run_id, :run_attempt, {now}, {now}
from (select pg_advisory_xact_lock({lock_of_thread})) alone
on conflict (tenant, thread_id) do nothing
returning *, {now} as now;

-- name: lock_unmanaged_thread
-- Keep others from beginning a thread that has no row, and from minting and storing in it, until this transaction ends. It
-- returns nothing.
-- differs: only here; on SQLite writers come one after the other.
select 1 as locked
from (select pg_advisory_xact_lock({lock_of_thread}) as taken) alone
where alone.taken is null;

-- name: share_unmanaged_thread
-- Keep others from beginning a thread that has no row until this transaction ends. It returns nothing.
-- differs: see lock_unmanaged_thread.
select 1 as shared
from (select pg_advisory_xact_lock_shared({lock_of_thread}) as taken) beside
where beside.taken is null;

-- name: list_lineage
-- Read a checkpoint's line of ancestors, itself first, back to a place in the order of commits: parents come before.
-- differs: its planner may read the whole thread for each step back, unless a step is a query by itself.
with recursive line (checkpoint_id, parent_id, source, depth) as (
  select checkpoint_id, parent_id, source, 0
  from counterfoil_checkpoint
  where tenant = :tenant
    and thread_id = :thread_id
    and checkpoint_ns = :checkpoint_ns
    and checkpoint_id = :checkpoint_id
  union all
  select older.checkpoint_id, older.parent_id, older.source, line.depth + 1
  from line
  cross join lateral (
    select checkpoint_id, parent_id, source
    from counterfoil_checkpoint
    where tenant = :tenant
      and thread_id = :thread_id
      and checkpoint_ns = :checkpoint_ns
      and checkpoint_id = line.parent_id
      and seq >= :oldest
    limit 1
  ) older
)
select checkpoint_id, parent_id, source
from line
order by depth;
