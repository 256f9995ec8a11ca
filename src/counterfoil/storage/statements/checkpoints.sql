-- name: insert_checkpoint
-- Store a checkpoint; its seq gives the order of commit, by which the newest is found. Storing it again renews it.
insert into counterfoil_checkpoint (tenant, thread_id, checkpoint_ns, checkpoint_id, parent_id, root_id, source, step,
  run_id, type, body, stored_channels, leaning, metadata, attempt, created_at)
values (:tenant, :thread_id, :checkpoint_ns, :checkpoint_id, :parent_id, :root_id, :source, :step,
  :run_id, :type, :body, :stored_channels, :leaning, :metadata, :attempt, {now})
on conflict (tenant, thread_id, checkpoint_ns, checkpoint_id) do update
set type = excluded.type,
  body = excluded.body,
  stored_channels = excluded.stored_channels,
  leaning = excluded.leaning,
  metadata = excluded.metadata,
  attempt = excluded.attempt
returning seq;

-- name: insert_channel
-- Store a channel's value at one version, once.
insert into counterfoil_channel (tenant, thread_id, checkpoint_ns, channel, version, type, value)
values (:tenant, :thread_id, :checkpoint_ns, :channel, :version, :type, :value)
on conflict (tenant, thread_id, checkpoint_ns, channel, version) do nothing
returning channel;

-- name: insert_write
-- Store a task's write; one that is stored already stays.
insert into counterfoil_write (tenant, thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, value,
  task_path, attempt)
values (:tenant, :thread_id, :checkpoint_ns, :checkpoint_id, :task_id, :idx, :channel, :type, :value,
  :task_path, :attempt)
on conflict (tenant, thread_id, checkpoint_ns, checkpoint_id, task_id, idx) do nothing
returning idx;

-- name: replace_write
-- Store a task's error, interrupt or resume value; a later one replaces it.
insert into counterfoil_write (tenant, thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, value,
  task_path, attempt)
values (:tenant, :thread_id, :checkpoint_ns, :checkpoint_id, :task_id, :idx, :channel, :type, :value,
  :task_path, :attempt)
on conflict (tenant, thread_id, checkpoint_ns, checkpoint_id, task_id, idx) do update
set channel = excluded.channel,
  type = excluded.type,
  value = excluded.value,
  attempt = excluded.attempt
returning idx;

-- fragment: stored_channel
-- A channel's value by its key: as a subquery, since a planner that takes a thread for short would read all its values.
from counterfoil_channel stored
    where stored.tenant = found.tenant
      and stored.thread_id = found.thread_id
      and stored.checkpoint_ns = found.checkpoint_ns
      and stored.channel = named.key
      and stored.version = named.value

-- fragment: parts
-- All that belongs to the checkpoints in `found`: each itself, the channel values that it names, its pending writes.
select 'checkpoint' as part, seq, thread_id, checkpoint_ns, checkpoint_id, parent_id, cast(null as text) as name,
  cast(null as text) as task_id, cast(null as text) as task_path, cast(null as bigint) as idx, type, body as value,
  metadata
from found
union all
select 'channel', found.seq, null, null, null, null, named.key, null, null, null,
  (select stored.type {stored_channel}), (select stored.value {stored_channel}), null
from found
cross join {named_channels} named
union all
select 'write', found.seq, null, null, null, null, pending.channel, pending.task_id, pending.task_path, pending.idx,
  pending.type, pending.value, null
from found
join counterfoil_write pending
  on pending.tenant = found.tenant
  and pending.thread_id = found.thread_id
  and pending.checkpoint_ns = found.checkpoint_ns
  and pending.checkpoint_id = found.checkpoint_id

-- fragment: owner
-- The thread's own row, among the parts of its checkpoints: its attempt stands as seq and its state as name.
select 'thread', attempt, thread_id, null, null, null, state, null, null, null, null, null, null
from counterfoil_thread
where tenant = :tenant
  and thread_id = :thread_id

-- fragment: wanted
-- What narrows a page of checkpoints; null leaves a filter out.
and seq < :before
  and (cast(:checkpoint_id as text) is null or checkpoint_id = :checkpoint_id)
  and (cast(:source as text) is null or source = :source)
  and (cast(:step as bigint) is null or step = :step)
  and (cast(:run_id as text) is null or run_id = :run_id)

-- name: read_checkpoint
-- Read one checkpoint whole, and who owns its thread.
with found as materialized (
  select *
  from counterfoil_checkpoint
  where tenant = :tenant
    and thread_id = :thread_id
    and checkpoint_ns = :checkpoint_ns
    and checkpoint_id = :checkpoint_id
)
{parts}
union all
{owner};

-- name: read_newest_checkpoint
-- Read whole the checkpoint that was committed last, and who owns its thread: clocks of several hosts do not agree,
-- commits do. That seq is positive admits the index.
with found as materialized (
  select *
  from counterfoil_checkpoint
  where tenant = :tenant
    and thread_id = :thread_id
    and checkpoint_ns = :checkpoint_ns
    and seq > 0
  order by seq desc
  limit 1
)
{parts}
union all
{owner};

-- name: page_namespace_checkpoints
-- Read a page of the checkpoints of one thread and namespace whole, the newest first.
with found as materialized (
  select *
  from counterfoil_checkpoint
  where tenant = :tenant
    and thread_id = :thread_id
    and checkpoint_ns = :checkpoint_ns
    and seq > 0
    {wanted}
  order by seq desc
  limit :page
)
{parts};

-- name: page_thread_checkpoints
-- Read a page of a thread's checkpoints of all namespaces whole, the newest first. The namespaces are found by jumping
-- from one to the next in the index: most threads have few, and then nothing is sorted but their newest rows.
with recursive space (checkpoint_ns) as (
  select min(checkpoint_ns)
  from counterfoil_checkpoint
  where tenant = :tenant
    and thread_id = :thread_id
  union all
  select (
    select min(later.checkpoint_ns)
    from counterfoil_checkpoint later
    where later.tenant = :tenant
      and later.thread_id = :thread_id
      and later.checkpoint_ns > space.checkpoint_ns
  )
  from space
  where space.checkpoint_ns is not null
),
found as materialized (
  select *
  from counterfoil_checkpoint
  where seq in (
    select seq
    from counterfoil_checkpoint
    where tenant = :tenant
      and thread_id = :thread_id
      and checkpoint_ns in (select space.checkpoint_ns from space)
      {wanted}
    order by seq desc
    limit :page
  )
)
{parts};

-- name: page_tenant_checkpoints
-- Read a page of a tenant's checkpoints whole, the newest first.
with found as materialized (
  select *
  from counterfoil_checkpoint
  where seq in (
    select seq
    from counterfoil_checkpoint
    where tenant = :tenant
      {wanted}
    order by seq desc
    limit :page
  )
)
{parts};

-- fragment: ancestors
-- What is read of the ancestors in `found`.
select 'checkpoint' as part, seq, checkpoint_id, parent_id, leaning as name, cast(null as text) as task_id,
  cast(null as text) as task_path, cast(null as bigint) as idx, type, body as value
from found
union all
select 'channel', found.seq, null, null, named.key, null, null, null,
  (select stored.type {stored_channel}), (select stored.value {stored_channel})
from found
cross join {named_channels} named
where named.key in (select asked.key from {asked_channels} asked)
union all
select 'write', found.seq, null, null, pending.channel, pending.task_id, pending.task_path, pending.idx, pending.type,
  pending.value
from found
join counterfoil_write pending
  on pending.tenant = found.tenant
  and pending.thread_id = found.thread_id
  and pending.checkpoint_ns = found.checkpoint_ns
  and pending.checkpoint_id = found.checkpoint_id
where pending.channel in (select asked.key from {asked_channels} asked)

-- name: page_ancestors
-- Read some of a checkpoint's line of ancestors, itself first: which delta channels lean there on older ones (as name),
-- and of the channels that are asked for the values and writes.
with recursive line (checkpoint_id, parent_id, depth) as (
  select checkpoint_id, parent_id, 1
  from counterfoil_checkpoint
  where tenant = :tenant
    and thread_id = :thread_id
    and checkpoint_ns = :checkpoint_ns
    and checkpoint_id = :checkpoint_id
  union all
  select older.checkpoint_id, older.parent_id, line.depth + 1
  from line
  join counterfoil_checkpoint older
    on older.tenant = :tenant
    and older.thread_id = :thread_id
    and older.checkpoint_ns = :checkpoint_ns
    and older.checkpoint_id = line.parent_id
  where line.depth < :page
),
found as materialized (
  select counterfoil_checkpoint.*
  from line
  join counterfoil_checkpoint
    on counterfoil_checkpoint.tenant = :tenant
    and counterfoil_checkpoint.thread_id = :thread_id
    and counterfoil_checkpoint.checkpoint_ns = :checkpoint_ns
    and counterfoil_checkpoint.checkpoint_id = line.checkpoint_id
)
{ancestors};

-- name: delete_thread_checkpoints
-- Delete a thread's checkpoints.
delete from counterfoil_checkpoint
where tenant = :tenant
  and thread_id = :thread_id
returning checkpoint_ns, checkpoint_id;

-- name: delete_thread_writes
-- Delete the pending writes of a thread whose checkpoint is gone; a run that begins meanwhile keeps its own.
delete from counterfoil_write
where tenant = :tenant
  and thread_id = :thread_id
  and (checkpoint_ns, checkpoint_id) not in (
    select checkpoint_ns, checkpoint_id
    from counterfoil_checkpoint
    where tenant = :tenant
      and thread_id = :thread_id
  );

-- name: delete_thread_mints
-- Delete where ids were minted in a thread, at a root graph's checkpoint that is gone; a run that begins meanwhile keeps
-- its own.
delete from counterfoil_mint
where tenant = :tenant
  and thread_id = :thread_id
  and checkpoint_id not in (
    select checkpoint_id
    from counterfoil_checkpoint
    where tenant = :tenant
      and thread_id = :thread_id
      and checkpoint_ns = ''
  );
