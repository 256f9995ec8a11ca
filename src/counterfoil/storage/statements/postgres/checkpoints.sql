-- fragment: claimed
-- The thread, kept as it is until the end of the transaction, if this run owns it.
select 1
  from counterfoil_thread
  where tenant = :tenant
    and thread_id = :thread_id
    and attempt = :attempt
    and state = :expected_state
  {shared}

-- fragment: unmanaged
-- A row if nobody manages the thread, or is just about to.
select 1
  where pg_try_advisory_xact_lock_shared({lock_of_thread})
    and not exists (
      select 1 from counterfoil_thread where tenant = :tenant and thread_id = :thread_id
    )

-- fragment: checkpoint
-- The checkpoint and the channel values that it brings, as `insert_checkpoint` and `insert_channel` store them.
made as (
  insert into counterfoil_checkpoint (tenant, thread_id, checkpoint_ns, checkpoint_id, parent_id, root_id, source, step,
    run_id, type, body, stored_channels, leaning, metadata, attempt, created_at)
  select :tenant, :thread_id, :checkpoint_ns, :checkpoint_id, :parent_id, :root_id, :source, :step,
    :run_id, :type, :body, :stored_channels, :leaning, :metadata, :attempt, {now}
  from owner
  on conflict (tenant, thread_id, checkpoint_ns, checkpoint_id) do update
  set type = excluded.type,
    body = excluded.body,
    stored_channels = excluded.stored_channels,
    leaning = excluded.leaning,
    metadata = excluded.metadata,
    attempt = excluded.attempt
  returning seq
),
brought as (
  insert into counterfoil_channel (tenant, thread_id, checkpoint_ns, channel, version, type, value)
  select :tenant, :thread_id, :checkpoint_ns, given.channel, given.version, given.type, given.value
  from owner
  cross join unnest(cast(:channels as text[]), cast(:versions as text[]), cast(:types as text[]),
    cast(:values as bytea[])) given (channel, version, type, value)
  on conflict (tenant, thread_id, checkpoint_ns, channel, version) do nothing
)
select seq
from made

-- fragment: writes
-- A task's writes, as `insert_write` and `replace_write` store them.
insert into counterfoil_write (tenant, thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, value,
    task_path, attempt)
  select :tenant, :thread_id, :checkpoint_ns, :checkpoint_id, :task_id, given.idx, given.channel, given.type,
    given.value, :task_path, :attempt
  from owner
  cross join unnest(cast(:indexes as bigint[]), cast(:channels as text[]), cast(:types as text[]),
    cast(:values as bytea[])) given (idx, channel, type, value)
  on conflict (tenant, thread_id, checkpoint_ns, checkpoint_id, task_id, idx)

-- fragment: replacing
-- What a later write replaces.
do update
  set channel = excluded.channel,
    type = excluded.type,
    value = excluded.value,
    attempt = excluded.attempt

-- name: put_checkpoint_if_claimed
-- Store a checkpoint with the channel values that it brings, and raise its thread's version, if this run owns that.
-- differs: only here, where it saves a round trip for every row and two for the transaction.
with owner as (
  update counterfoil_thread
  set version = version + 1,
    updated_at = {now}
  where tenant = :tenant
    and thread_id = :thread_id
    and attempt = :attempt
    and state = :expected_state
  returning version
),
{checkpoint};

-- name: put_checkpoint_if_unmanaged
-- Store a checkpoint with the channel values that it brings, if nobody manages its thread.
-- differs: see put_checkpoint_if_claimed.
with owner as (
  {unmanaged}
),
{checkpoint};

-- name: put_writes_if_claimed
-- Store a task's writes, each once, if this run owns the thread.
-- differs: see put_checkpoint_if_claimed.
with owner as (
  {claimed}
),
made as (
  {writes} do nothing
)
select 1 as stored
from owner;

-- name: put_writes_if_unmanaged
-- Store a task's writes, each once, if nobody manages the thread.
-- differs: see put_checkpoint_if_claimed.
with owner as (
  {unmanaged}
),
made as (
  {writes} do nothing
)
select 1 as stored
from owner;

-- name: replace_writes_if_claimed
-- Store a task's error, interrupt or resume values, the last of each, if this run owns the thread.
-- differs: see put_checkpoint_if_claimed.
with owner as (
  {claimed}
),
made as (
  {writes} {replacing}
)
select 1 as stored
from owner;

-- name: replace_writes_if_unmanaged
-- Store a task's error, interrupt or resume values, the last of each, if nobody manages the thread.
-- differs: see put_checkpoint_if_claimed.
with owner as (
  {unmanaged}
),
made as (
  {writes} {replacing}
)
select 1 as stored
from owner;

-- name: page_thread_checkpoints
-- Read a page of a thread's checkpoints of all namespaces whole, the newest first.
-- differs: its planner does not see that each namespace's newest come first in the index, and reads the whole thread. So
-- the namespaces are found by jumping from one to the next, and of each no more than a page is read.
with recursive space (checkpoint_ns) as (
  (
    select checkpoint_ns
    from counterfoil_checkpoint
    where tenant = :tenant
      and thread_id = :thread_id
    order by checkpoint_ns
    limit 1
  )
  union all
  select (
    select later.checkpoint_ns
    from counterfoil_checkpoint later
    where later.tenant = :tenant
      and later.thread_id = :thread_id
      and later.checkpoint_ns > space.checkpoint_ns
    order by later.checkpoint_ns
    limit 1
  )
  from space
  where space.checkpoint_ns is not null
),
found as materialized (
  select newest.*
  from space
  cross join lateral (
    select *
    from counterfoil_checkpoint
    where tenant = :tenant
      and thread_id = :thread_id
      and checkpoint_ns = space.checkpoint_ns
      and seq > 0
      {wanted}
    order by seq desc
    limit :page
  ) newest
  order by newest.seq desc
  limit :page
)
{parts};

-- name: page_tenant_checkpoints
-- Read a page of a tenant's checkpoints whole, the newest first.
-- differs: checkpoints have an index of (tenant, seq) here, which is as short as that of seq alone.
with found as materialized (
  select *
  from counterfoil_checkpoint
  where tenant = :tenant
    {wanted}
  order by seq desc
  limit :page
)
{parts};

-- name: page_ancestors
-- Read some of a checkpoint's line of ancestors, itself first: which delta channels lean there on older ones (as name),
-- and of the channels that are asked for the values and writes.
-- differs: its planner may read the whole thread for each step back, unless a step is a query by itself.
with recursive line as (
  select counterfoil_checkpoint.*, 1 as depth
  from counterfoil_checkpoint
  where tenant = :tenant
    and thread_id = :thread_id
    and checkpoint_ns = :checkpoint_ns
    and checkpoint_id = :checkpoint_id
  union all
  select older.*, line.depth + 1
  from line
  cross join lateral (
    select *
    from counterfoil_checkpoint
    where tenant = :tenant
      and thread_id = :thread_id
      and checkpoint_ns = :checkpoint_ns
      and checkpoint_id = line.parent_id
    limit 1
  ) older
  where line.depth < :page
),
found as materialized (
  select *
  from line
)
{ancestors};
