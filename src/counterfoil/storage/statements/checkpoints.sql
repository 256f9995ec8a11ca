-- name: insert_checkpoint
-- Store a checkpoint; its seq gives the order of commit, by which the newest is found. Storing it again renews it.
insert into counterfoil_checkpoint (tenant, thread_id, checkpoint_ns, checkpoint_id, parent_id, source, step, run_id,
  type, body, stored_channels, metadata, attempt, created_at)
values (:tenant, :thread_id, :checkpoint_ns, :checkpoint_id, :parent_id, :source, :step, :run_id,
  :type, :body, :stored_channels, :metadata, :attempt, {now})
on conflict (tenant, thread_id, checkpoint_ns, checkpoint_id) do update
set type = excluded.type,
  body = excluded.body,
  stored_channels = excluded.stored_channels,
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

-- name: get_checkpoint
-- Read one checkpoint.
select *
from counterfoil_checkpoint
where tenant = :tenant
  and thread_id = :thread_id
  and checkpoint_ns = :checkpoint_ns
  and checkpoint_id = :checkpoint_id;

-- name: get_newest_checkpoint
-- Read the checkpoint that was committed last: clocks of several hosts do not agree, commits do.
select *
from counterfoil_checkpoint
where tenant = :tenant
  and thread_id = :thread_id
  and checkpoint_ns = :checkpoint_ns
order by seq desc
limit 1;

-- name: list_channels
-- Read the values of some channels, each at one version; `wanted` is a JSON array of [channel, version].
select stored.channel, stored.type, stored.value
from json_each(:wanted) wish
join counterfoil_channel stored
  on stored.tenant = :tenant
  and stored.thread_id = :thread_id
  and stored.checkpoint_ns = :checkpoint_ns
  and stored.channel = json_extract(wish.value, '$[0]')
  and stored.version = json_extract(wish.value, '$[1]');

-- name: list_writes
-- Read a checkpoint's pending writes in the order in which live execution applies them.
select task_id, channel, type, value
from counterfoil_write
where tenant = :tenant
  and thread_id = :thread_id
  and checkpoint_ns = :checkpoint_ns
  and checkpoint_id = :checkpoint_id
order by task_path, task_id, idx;

-- name: page_tenant_checkpoints
-- Read a page of a tenant's checkpoints, the newest first.
select *
from counterfoil_checkpoint
where tenant = :tenant
  and seq < :before
order by seq desc
limit :page;

-- name: page_thread_checkpoints
-- Read a page of a thread's checkpoints of all namespaces, the newest first.
select *
from counterfoil_checkpoint
where tenant = :tenant
  and thread_id = :thread_id
  and seq < :before
order by seq desc
limit :page;

-- name: page_namespace_checkpoints
-- Read a page of the checkpoints of one thread and namespace, the newest first.
select *
from counterfoil_checkpoint
where tenant = :tenant
  and thread_id = :thread_id
  and checkpoint_ns = :checkpoint_ns
  and seq < :before
order by seq desc
limit :page;

-- name: delete_thread_checkpoints
-- Delete a thread's checkpoints.
delete from counterfoil_checkpoint
where tenant = :tenant
  and thread_id = :thread_id;

-- name: delete_thread_channels
-- Delete a thread's channel values.
delete from counterfoil_channel
where tenant = :tenant
  and thread_id = :thread_id;

-- name: delete_thread_writes
-- Delete a thread's pending writes.
delete from counterfoil_write
where tenant = :tenant
  and thread_id = :thread_id;

-- name: delete_thread_mints
-- Delete where a thread's ids were minted.
delete from counterfoil_mint
where tenant = :tenant
  and thread_id = :thread_id;
