-- fragment: workflow
-- A workflow as lists show it, from its two rows.
workflow.seq, workflow.tenant, workflow.workflow_id, workflow.shape, workflow.created_at, thread.graph,
  thread.graph_version, thread.status, thread.version, thread.attempt, thread.holder, thread.lease_until, thread.due_at,
  thread.tries, thread.waits_for, thread.parked_on, thread.error_class, thread.error_text, thread.request_id,
  thread.principal, thread.updated_at, {now} as now

-- name: insert_workflow
-- Keep what a workflow is started with, unless there is one of this id.
insert into counterfoil_workflow (tenant, workflow_id, shape, input_digest, field_digests, input, created_at)
values (:tenant, :thread_id, :shape, :input_digest, :field_digests, :input, {now})
on conflict (tenant, workflow_id) do nothing
returning seq;

-- name: get_workflow_input
-- Read what a workflow was started with.
select shape, input_digest, field_digests, input
from counterfoil_workflow
where tenant = :tenant
  and workflow_id = :thread_id;

-- name: delete_workflow
-- Delete what a workflow was started with.
delete from counterfoil_workflow
where tenant = :tenant
  and workflow_id = :thread_id
returning workflow_id;

-- name: put_accepted_thread
-- Accept a workflow: its thread is due at once. A thread that was forgotten may begin anew.
insert into counterfoil_thread (tenant, thread_id, state, request_id, workflow_id, principal, graph, graph_version, status,
  due_at, created_at, updated_at)
values (:tenant, :thread_id, :state, :request_id, :thread_id, :principal, :graph, :graph_version, :status,
  {now}, {now}, {now})
on conflict (tenant, thread_id) do update
set request_id = excluded.request_id,
  workflow_id = excluded.workflow_id,
  principal = excluded.principal,
  graph = excluded.graph,
  graph_version = excluded.graph_version,
  status = excluded.status,
  due_at = excluded.due_at,
  version = counterfoil_thread.version + 1,
  updated_at = {now}
where counterfoil_thread.status is null
  and counterfoil_thread.holder is null
returning version;

-- name: get_workflow
-- Read one workflow.
select {workflow}
from counterfoil_workflow workflow
join counterfoil_thread thread
  on thread.tenant = workflow.tenant
  and thread.thread_id = workflow.workflow_id
where workflow.tenant = :tenant
  and workflow.workflow_id = :thread_id;

-- name: list_workflows
-- Read a page of a tenant's workflows, the newest first.
select {workflow}
from counterfoil_workflow workflow
join counterfoil_thread thread
  on thread.tenant = workflow.tenant
  and thread.thread_id = workflow.workflow_id
where workflow.tenant = :tenant
  and workflow.seq < :before
  and (cast(:status as text) is null or thread.status = :status)
  and (cast(:graph as text) is null or thread.graph = :graph)
order by workflow.seq desc
limit :limit;

-- name: reserve_due_workflows
-- Take the workflows of one graph that are due, the longest due first; who takes one and dies leaves it due again later.
with due (owner, thread) as materialized (
  select found.tenant, found.thread_id
  from counterfoil_thread found
  where found.graph = :graph
    and found.graph_version = :graph_version
    and found.due_at is not null
    and found.due_at <= {now}
    and found.status in ('accepted', 'waiting')
  order by found.due_at
  limit :limit
  {skipping}
)
update counterfoil_thread
set due_at = {now} + :reserve
from due
where tenant = due.owner
  and thread_id = due.thread
returning tenant, thread_id, graph, graph_version, version, request_id, principal, due_at;

-- name: give_back_workflow_if_unmoved
-- Let a workflow be due again that was reserved and not entered.
update counterfoil_thread
set due_at = {now}
where tenant = :tenant
  and thread_id = :thread_id
  and version = :version
  and status in ('accepted', 'waiting')
returning version;

-- name: list_due_workflows
-- Read the workflows of one graph that are due, the longest due first.
select tenant, thread_id, graph, graph_version, version, request_id, principal
from counterfoil_thread
where graph = :graph
  and graph_version = :graph_version
  and due_at is not null
  and due_at <= {now}
  and status in ('accepted', 'waiting')
order by due_at
limit :limit;

-- name: end_lease_if_held
-- End the lease of a run whose process is gone, unless it moved since it was read.
update counterfoil_thread
set lease_until = {now}
where tenant = :tenant
  and thread_id = :thread_id
  and version = :version
  and holder = :holder
  and status = 'running'
returning version;

-- name: list_lost_workflows
-- Read the running workflows of one graph whose lease is over, but for those that were just found not to fit.
select tenant, thread_id, graph, graph_version, version, request_id, principal, holder
from counterfoil_thread
where graph = :graph
  and graph_version = :graph_version
  and status = 'running'
  and lease_until <= {now}
  and (due_at is null or due_at <= {now})
order by lease_until
limit :limit;

-- name: list_stranded_workflows
-- Read the workflows of one graph, whatever its version, that nobody enters though they are due, unless they say why.
select tenant, thread_id, graph, graph_version, version, request_id, principal
from counterfoil_thread
where graph = :graph
  and (error_class is null or error_class <> :error_class)
  and (status in ('accepted', 'waiting') and due_at <= {now}
    or status = 'running' and lease_until <= {now})
order by coalesce(due_at, lease_until)
limit :limit;

-- name: list_running_workflows
-- Read the running workflows of one graph: a worker that finds a dead holder on its own machine need not wait.
select tenant, thread_id, graph, graph_version, version, request_id, principal, holder
from counterfoil_thread
where graph = :graph
  and graph_version = :graph_version
  and status = 'running'
  and (due_at is null or due_at <= {now})
order by lease_until
limit :limit;

-- name: wake_settled_workflows
-- Let workflows be due whose unknown outcome is settled by now.
update counterfoil_thread
set due_at = {now}
where graph = :graph
  and graph_version = :graph_version
  and status = 'waiting'
  and parked_on is not null
  and (due_at is null or due_at > {now} + :later_than)
  and not exists (
    select 1
    from counterfoil_operation operation
    where operation.tenant = counterfoil_thread.tenant
      and operation.operation_id = counterfoil_thread.parked_on
      and operation.state in ('unknown', 'in_flight', 'awaiting_approval')
  )
returning thread_id;

-- name: wake_parked_workflow
-- Let a workflow be due whose unknown outcome was just settled; one that somebody is moving is found when that is over.
with found as materialized (
  select parked.tenant as owner, parked.thread_id as thread
  from counterfoil_thread parked
  where parked.tenant = :tenant
    and parked.thread_id = :thread_id
    and parked.parked_on = :operation_id
    and parked.status = :expected_status
  {skipping}
)
update counterfoil_thread
set due_at = {now}
from found
where tenant = found.owner
  and thread_id = found.thread
returning graph, graph_version;

-- name: get_entry
-- Read what a worker enters a workflow with: its input, and whether it has a checkpoint by now.
select workflow.input, workflow.shape, exists (
    select 1
    from counterfoil_checkpoint place
    where place.tenant = workflow.tenant
      and place.thread_id = workflow.workflow_id
      and place.checkpoint_ns = ''
      and place.seq > 0
  ) as has_begun
from counterfoil_workflow workflow
where workflow.tenant = :tenant
  and workflow.workflow_id = :thread_id;

-- name: get_newest_seq
-- Say where a thread's newest checkpoint stands in the order of commits.
select seq
from counterfoil_checkpoint
where tenant = :tenant
  and thread_id = :thread_id
  and checkpoint_ns = ''
  and seq > 0
order by seq desc
limit 1;

-- name: leave_workflow_if_claimed
-- Give a workflow's thread back, with what its run came to. An event that came meanwhile lets it be due at once.
update counterfoil_thread
set state = :state,
  version = version + 1,
  holder = null,
  lease_until = 0,
  parked_on = :parked_on,
  status = :status,
  due_at = case when :terminal then null else nullif({least}(coalesce(due_at, 9223372036854775807),
    coalesce(cast(:due_at as bigint), 9223372036854775807),
    coalesce({now} + :delay, 9223372036854775807)), 9223372036854775807) end,
  tries = :tries,
  mark = :mark,
  waits_for = :waits_for,
  error_class = :error_class,
  error_text = :error_text,
  updated_at = {now}
where tenant = :tenant
  and thread_id = :thread_id
  and attempt = :attempt
  and state = :expected_state
returning version, due_at, graph, graph_version, {now} as now;

-- name: park_workflow_if_unmoved
-- Leave a workflow to a person that was entered again and again and got no further, unless it moved since it was read.
update counterfoil_thread
set state = :state,
  attempt = attempt + 1,
  version = version + 1,
  holder = null,
  lease_until = 0,
  status = :status,
  due_at = null,
  error_class = :error_class,
  error_text = :error_text,
  updated_at = {now}
where tenant = :tenant
  and thread_id = :thread_id
  and version = :version
returning version;

-- name: hold_workflow_if_unmoved
-- Say why a workflow that is due is not entered, unless it moved since it was read; it is looked at again later.
update counterfoil_thread
set due_at = {now} + :delay,
  error_class = :error_class,
  error_text = :error_text
where tenant = :tenant
  and thread_id = :thread_id
  and version = :version
returning version;

-- name: note_workflow_if_unmoved
-- Say why a workflow that is due is not entered here, unless it moved since it was read; others may enter it at once.
update counterfoil_thread
set error_class = :error_class,
  error_text = :error_text
where tenant = :tenant
  and thread_id = :thread_id
  and version = :version
returning version;

-- name: wake_workflow
-- Let a workflow be due: at once, or as soon as its run ends.
update counterfoil_thread
set due_at = {now},
  updated_at = {now}
where tenant = :tenant
  and thread_id = :thread_id
  and status in ('accepted', 'running', 'waiting')
returning version, status, graph, graph_version;

-- name: resume_workflow_if_unmoved
-- Let a workflow go on that was left to a person, unless it moved since it was read.
update counterfoil_thread
set status = :status,
  version = version + 1,
  due_at = {now},
  tries = 0,
  error_class = :error_class,
  error_text = :error_text,
  updated_at = {now}
where tenant = :tenant
  and thread_id = :thread_id
  and version = :version
returning version;

-- name: cancel_workflow_if_unmoved
-- End a workflow, unless it moved since it was read; a run that is at work on it can store nothing more.
update counterfoil_thread
set state = :state,
  status = :status,
  attempt = attempt + 1,
  version = version + 1,
  holder = null,
  lease_until = 0,
  parked_on = null,
  due_at = null,
  waits_for = null,
  error_class = :error_class,
  error_text = :error_text,
  updated_at = {now}
where tenant = :tenant
  and thread_id = :thread_id
  and version = :version
returning version;

-- name: list_steps
-- Read a page of a workflow's checkpoints of the root graph, the newest first.
select seq, checkpoint_id, parent_id, source, step, created_at
from counterfoil_checkpoint
where tenant = :tenant
  and thread_id = :thread_id
  and checkpoint_ns = ''
  and seq > 0
  and seq < :before
order by seq desc
limit :limit;

-- name: list_step_writes
-- Read which tasks stored writes on one checkpoint of the root graph, and on which channels.
select task_id, task_path, channel
from counterfoil_write
where tenant = :tenant
  and thread_id = :thread_id
  and checkpoint_ns = ''
  and checkpoint_id = :checkpoint_id
order by task_path, task_id, idx;

-- name: list_workflow_operations
-- Read what the steps of a workflow asked for, in the order in which they did.
select operation_id, state
from counterfoil_operation
where tenant = :tenant
  and thread_id = :thread_id
order by seq
limit :limit;
