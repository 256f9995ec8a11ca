-- name: insert_claimed_thread
-- Begin a thread that nobody has run yet, already claimed.
insert into counterfoil_thread (tenant, thread_id, state, attempt, version, holder, lease_until, request_id,
  workflow_id, principal, run_id, run_attempt, created_at, updated_at)
values (:tenant, :thread_id, :state, 1, 1, :holder, {now} + :lease, :request_id,
  :workflow_id, :principal, :run_id, :run_attempt, {now}, {now})
on conflict (tenant, thread_id) do nothing
returning *, {now} as now;

-- name: lock_thread
-- Read one thread, with the database's time, and keep others from moving it until this transaction ends.
select *, {now} as now
from counterfoil_thread
where tenant = :tenant
  and thread_id = :thread_id
{locked};

-- name: share_thread
-- Read one thread and keep its claim from being taken until this transaction ends; others may do so beside.
select *, {now} as now
from counterfoil_thread
where tenant = :tenant
  and thread_id = :thread_id
{shared};

-- name: get_thread
-- Read one thread, with the database's time.
select *, {now} as now
from counterfoil_thread
where tenant = :tenant
  and thread_id = :thread_id;

-- name: take_thread_if_unmoved
-- Claim a thread unless it moved since it was read.
update counterfoil_thread
set state = :state,
  attempt = attempt + 1,
  version = version + 1,
  holder = :holder,
  lease_until = {now} + :lease,
  request_id = :request_id,
  workflow_id = :workflow_id,
  principal = :principal,
  run_id = :run_id,
  run_attempt = :run_attempt,
  status = :status,
  tries = :tries,
  mark = :mark,
  due_at = null,
  updated_at = {now}
where tenant = :tenant
  and thread_id = :thread_id
  and version = :version
returning *, {now} as now;

-- name: renew_thread_if_claimed
-- Heartbeat: extend a run's claim on its thread.
update counterfoil_thread
set lease_until = {now} + :lease
where tenant = :tenant
  and thread_id = :thread_id
  and attempt = :attempt
  and state = :expected_state
returning lease_until;

-- name: leave_thread_if_claimed
-- Give a thread back: idle, or parked on an operation whose outcome is unknown.
update counterfoil_thread
set state = :state,
  version = version + 1,
  holder = null,
  lease_until = 0,
  parked_on = :parked_on,
  updated_at = {now}
where tenant = :tenant
  and thread_id = :thread_id
  and attempt = :attempt
  and state = :expected_state
returning version;

-- name: advance_thread_if_claimed
-- Raise a thread's version with a checkpoint, in its transaction, if this run still owns the thread. Its workflow has got
-- on, be it in a child graph.
update counterfoil_thread
set version = version + 1,
  tries = 0,
  updated_at = {now}
where tenant = :tenant
  and thread_id = :thread_id
  and attempt = :attempt
  and state = :expected_state
returning version;

-- name: reset_thread
-- Forget a thread but for its number of attempts: a run that still owned it must not be taken for a later one.
update counterfoil_thread
set state = :state,
  attempt = attempt + 1,
  version = version + 1,
  holder = null,
  lease_until = 0,
  parked_on = null,
  request_id = null,
  workflow_id = null,
  principal = null,
  branch = null,
  branched_from = null,
  branched_at = null,
  plain_thread_id = null,
  run_id = null,
  run_attempt = null,
  graph = null,
  graph_version = null,
  status = null,
  due_at = null,
  tries = 0,
  mark = 0,
  waits_for = null,
  error_class = null,
  error_text = null,
  updated_at = {now}
where tenant = :tenant
  and thread_id = :thread_id
returning version;

-- name: fence_thread
-- Take a thread from the run that owns it: that can write nothing more.
update counterfoil_thread
set state = :state,
  attempt = attempt + 1,
  version = version + 1,
  holder = null,
  lease_until = 0,
  parked_on = null,
  updated_at = {now}
where tenant = :tenant
  and thread_id = :thread_id
returning version;

-- name: put_thread_at_rest
-- Make a thread that nobody runs, or take it from a run that is over, unless somebody claimed it since it was read: what
-- it is is copied from another one.
insert into counterfoil_thread (tenant, thread_id, state, parked_on, request_id, workflow_id, principal, branch,
  branched_from, branched_at, created_at, updated_at)
values (:tenant, :thread_id, :state, :parked_on, :request_id, :workflow_id, :principal, :branch,
  :branched_from, :branched_at, {now}, {now})
on conflict (tenant, thread_id) do update
set state = excluded.state,
  attempt = counterfoil_thread.attempt + 1,
  version = counterfoil_thread.version + 1,
  holder = null,
  lease_until = 0,
  parked_on = excluded.parked_on,
  request_id = excluded.request_id,
  workflow_id = excluded.workflow_id,
  principal = excluded.principal,
  branch = excluded.branch,
  branched_from = excluded.branched_from,
  branched_at = excluded.branched_at,
  plain_thread_id = null,
  updated_at = {now}
where counterfoil_thread.attempt = :seen_attempt
returning version;

-- name: insert_mint
-- Record a minted id with the task that minted it and the root graph's checkpoint on which that ran.
insert into counterfoil_mint (tenant, thread_id, checkpoint_ns, name, checkpoint_id, task_id, minted_id, at)
values (:tenant, :thread_id, :checkpoint_ns, :name, :checkpoint_id, :task_id, :minted_id, {now})
returning minted_id;

-- name: list_mints
-- Read where ids of one name were minted in a thread, and where the root graph's checkpoint stands, if it is still there.
select mint.checkpoint_id, mint.task_id, mint.minted_id, place.seq
from counterfoil_mint mint
left join counterfoil_checkpoint place
  on place.tenant = mint.tenant
  and place.thread_id = mint.thread_id
  and place.checkpoint_ns = ''
  and place.checkpoint_id = mint.checkpoint_id
where mint.tenant = :tenant
  and mint.thread_id = :thread_id
  and mint.name = :name;

-- name: get_checkpoint_seq
-- Say where a checkpoint stands in the order of commits, if it is stored by now.
select seq
from counterfoil_checkpoint
where tenant = :tenant
  and thread_id = :thread_id
  and checkpoint_ns = :checkpoint_ns
  and checkpoint_id = :checkpoint_id;

-- name: list_lineage
-- Read a checkpoint's line of ancestors, itself first, back to a place in the order of commits: parents come before.
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
  join counterfoil_checkpoint older
    on older.tenant = :tenant
    and older.thread_id = :thread_id
    and older.checkpoint_ns = :checkpoint_ns
    and older.checkpoint_id = line.parent_id
    and older.seq >= :oldest
)
select checkpoint_id, parent_id, source
from line
order by depth;

-- name: get_mint
-- Say whether one step minted an id.
select minted_id
from counterfoil_mint
where tenant = :tenant
  and thread_id = :thread_id
  and minted_id = :minted_id
  and checkpoint_id = :checkpoint_id
  and task_id = :task_id;
