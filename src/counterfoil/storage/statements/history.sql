-- Threads are long or short, and PostgreSQL's planner takes most for short: it would compare each row of a long one with
-- each other. A membership that is asked as a value (`not in`, or `(... in ...) is true`) is looked up in a table that is
-- made once, and `distinct` keeps that table, as the planner sees it, within its memory.

-- name: list_outlines
-- Read a thread's checkpoints without their contents, in the order of their commits.
select seq, checkpoint_ns, checkpoint_id, parent_id, root_id, run_id, source, leaning
from counterfoil_checkpoint
where tenant = :tenant
  and thread_id = :thread_id
order by seq;

-- name: list_unstored_channels
-- Name the channel values that checkpoints of a thread name and that are not stored: those of former delta channels.
select found.seq, named.key as channel
from counterfoil_checkpoint found
cross join {named_channels} named
where found.tenant = :tenant
  and found.thread_id = :thread_id
  and (found.checkpoint_ns, named.key, named.value) not in (
    select checkpoint_ns, channel, version
    from counterfoil_channel
    where tenant = :tenant
      and thread_id = :thread_id
  );

-- name: list_threads_of_run
-- Name the threads in which a run of LangGraph's server made checkpoints, or that it claimed and has made none in yet.
select thread_id
from counterfoil_checkpoint
where tenant = :tenant
  and run_id = :run_id
union
select thread_id
from counterfoil_thread
where tenant = :tenant
  and run_id = :run_id
order by thread_id;

-- name: list_minted
-- Read where a thread's ids were minted.
select checkpoint_ns, name, checkpoint_id, task_id
from counterfoil_mint
where tenant = :tenant
  and thread_id = :thread_id;

-- name: delete_writes_between
-- Delete the pending writes of a thread's checkpoints that were committed between two others.
delete from counterfoil_write
where tenant = :tenant
  and thread_id = :thread_id
  and ((checkpoint_ns, checkpoint_id) in (
    select checkpoint_ns, checkpoint_id
    from counterfoil_checkpoint
    where tenant = :tenant
      and thread_id = :thread_id
      and seq > :after
      and seq < :before
  )) is true;

-- name: delete_checkpoints_between
-- Delete a thread's checkpoints that were committed between two others.
delete from counterfoil_checkpoint
where tenant = :tenant
  and thread_id = :thread_id
  and seq > :after
  and seq < :before
returning seq;

-- name: delete_unnamed_channels
-- Delete a thread's channel values that no checkpoint names any more.
delete from counterfoil_channel
where tenant = :tenant
  and thread_id = :thread_id
  and (checkpoint_ns, channel, version) not in (
    select distinct found.checkpoint_ns, named.key, named.value
    from counterfoil_checkpoint found
    cross join {named_channels} named
    where found.tenant = :tenant
      and found.thread_id = :thread_id
  );

-- name: delete_mint
-- Forget where an id was minted.
delete from counterfoil_mint
where tenant = :tenant
  and thread_id = :thread_id
  and checkpoint_ns = :checkpoint_ns
  and name = :name
  and checkpoint_id = :checkpoint_id
  and task_id = :task_id
returning minted_id;

-- name: copy_channels_between
-- Give another thread the channel values that checkpoints committed between two others name.
insert into counterfoil_channel (tenant, thread_id, checkpoint_ns, channel, version, type, value)
select stored.tenant, cast(:target as text), stored.checkpoint_ns, stored.channel, stored.version, stored.type,
  stored.value
from counterfoil_channel stored
where stored.tenant = :tenant
  and stored.thread_id = :thread_id
  and ((stored.checkpoint_ns, stored.channel, stored.version) in (
    select distinct found.checkpoint_ns, named.key, named.value
    from counterfoil_checkpoint found
    cross join {named_channels} named
    where found.tenant = :tenant
      and found.thread_id = :thread_id
      and found.seq > :after
      and found.seq < :before
  )) is true
on conflict (tenant, thread_id, checkpoint_ns, channel, version) do nothing;

-- name: copy_writes_between
-- Give another thread the pending writes of checkpoints that were committed between two others.
insert into counterfoil_write (tenant, thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, value,
  task_path, attempt)
select tenant, cast(:target as text), checkpoint_ns, checkpoint_id, task_id, idx, channel, type, value, task_path, 0
from counterfoil_write
where tenant = :tenant
  and thread_id = :thread_id
  and ((checkpoint_ns, checkpoint_id) in (
    select checkpoint_ns, checkpoint_id
    from counterfoil_checkpoint
    where tenant = :tenant
      and thread_id = :thread_id
      and seq > :after
      and seq < :before
  )) is true
on conflict (tenant, thread_id, checkpoint_ns, checkpoint_id, task_id, idx) do nothing;

-- name: copy_checkpoints_between
-- Give another thread the checkpoints that were committed between two others, in their order; no run of its made them.
insert into counterfoil_checkpoint (tenant, thread_id, checkpoint_ns, checkpoint_id, parent_id, root_id, source, step,
  type, body, stored_channels, leaning, metadata, attempt, created_at)
select tenant, cast(:target as text), checkpoint_ns, checkpoint_id, parent_id, root_id, source, step,
  type, body, stored_channels, leaning, metadata, 0, created_at
from counterfoil_checkpoint
where tenant = :tenant
  and thread_id = :thread_id
  and seq > :after
  and seq < :before
order by seq
on conflict (tenant, thread_id, checkpoint_ns, checkpoint_id) do nothing;

-- name: copy_mints
-- Give another thread what is known of where ids were minted.
insert into counterfoil_mint (tenant, thread_id, checkpoint_ns, name, checkpoint_id, task_id, minted_id, at)
select tenant, cast(:target as text), checkpoint_ns, name, checkpoint_id, task_id, minted_id, at
from counterfoil_mint
where tenant = :tenant
  and thread_id = :thread_id
on conflict (tenant, thread_id, checkpoint_ns, name, checkpoint_id, task_id) do nothing;
