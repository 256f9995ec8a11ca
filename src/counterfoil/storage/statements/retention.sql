-- name: list_operations_to_purge
-- Page through a tenant's operations, the oldest first: what their retention is judged by, and whether anything that was
-- learnt beside the receipt is there still.
select seq, tenant, operation_id, effect, effect_version, state, version, provider, first_attempt_at, created_at,
  settled_at, receipt_marker, {now} as now,
  case when settled_at is null then 0 else coalesce(
    (
      select 1
      from counterfoil_evidence evidence
      where evidence.tenant = operation.tenant
        and evidence.operation_id = operation.operation_id
        and evidence.body is not null
      limit 1
    ),
    (
      select 1
      from counterfoil_attempt attempt
      where attempt.tenant = operation.tenant
        and attempt.operation_id = operation.operation_id
        and attempt.error_text is not null
      limit 1
    ),
    0
  ) end as has_payload
from counterfoil_operation operation
where operation.tenant = :tenant
  and operation.seq > :after
order by operation.seq
limit :limit;

-- name: lock_operation_if_unneeded
-- Keep others from moving an operation that is settled, about which no case is open, and for which no run waits: one that
-- is under way or parked, or whose newest checkpoint asks a person or failed, enters its node again and asks for it.
select seq
from counterfoil_operation operation
where operation.tenant = :tenant
  and operation.operation_id = :operation_id
  and operation.version = :version
  and operation.settled_at is not null
  and not exists (
    select 1
    from counterfoil_case open_case
    where open_case.tenant = operation.tenant
      and open_case.operation_id = operation.operation_id
      and open_case.state = 'open'
  )
  and not exists (
    select 1
    from counterfoil_thread thread
    where thread.tenant = operation.tenant
      and thread.thread_id = operation.thread_id
      and thread.state <> 'idle'
  )
  and not exists (
    select 1
    from counterfoil_write pending
    where pending.tenant = operation.tenant
      and pending.thread_id = operation.thread_id
      and pending.checkpoint_ns = ''
      and pending.channel in ('__interrupt__', '__error__')
      and pending.checkpoint_id = (
        select newest.checkpoint_id
        from counterfoil_checkpoint newest
        where newest.tenant = operation.tenant
          and newest.thread_id = operation.thread_id
          and newest.checkpoint_ns = ''
        order by newest.seq desc
        limit 1
      )
  )
{locked};

-- name: drop_receipt_if_unmoved
-- Leave of a settled operation when and how it ended, and the digests that tell its arguments from others.
update counterfoil_operation
set receipt = substr(receipt, 1, 0),
  receipt_marker = :receipt_marker,
  evidence = null,
  error_class = null,
  error_text = null,
  version = version + 1,
  updated_at = {now}
where tenant = :tenant
  and operation_id = :operation_id
  and version = :version
  and settled_at is not null
returning seq;

-- name: drop_bodies_of_evidence
-- Leave of an operation's evidence what kind it was, from whom and when.
update counterfoil_evidence
set body = null
where tenant = :tenant
  and operation_id = :operation_id
  and body is not null
returning seq;

-- name: drop_words_of_attempts
-- Leave of an operation's attempts how each ended, without what it told.
update counterfoil_attempt
set error_text = null
where tenant = :tenant
  and operation_id = :operation_id
  and error_text is not null
returning attempt;

-- name: forget_evidence
-- Delete the evidence of an operation that is forgotten.
delete from counterfoil_evidence
where tenant = :tenant
  and operation_id = :operation_id
returning seq;

-- name: forget_attempts
-- Delete the attempts of an operation that is forgotten.
delete from counterfoil_attempt
where tenant = :tenant
  and operation_id = :operation_id
returning attempt;

-- name: forget_cases
-- Delete the cases of an operation that is forgotten; none of them is open.
delete from counterfoil_case
where tenant = :tenant
  and operation_id = :operation_id
  and state <> 'open'
returning seq;

-- name: forget_approvals
-- Delete what was asked about an operation that is forgotten; none of it waits for a decision.
delete from counterfoil_approval
where tenant = :tenant
  and operation_id = :operation_id
  and state <> 'pending'
returning seq;

-- name: forget_operation
-- Forget an operation that is settled: from now on its id is new.
delete from counterfoil_operation
where tenant = :tenant
  and operation_id = :operation_id
  and settled_at is not null
returning seq;

-- name: list_tenants_with_workflows_any_tenant
-- Name the tenants that have workflows by jumping from one to the next in the index: for the operator of the database only.
with recursive named (tenant) as (
  select min(tenant) from counterfoil_workflow
  union all
  select (select min(one.tenant) from counterfoil_workflow one where one.tenant > named.tenant)
  from named
  where named.tenant is not null
)
select tenant
from named
where tenant is not null;

-- name: list_workflows_to_purge
-- Page through a tenant's workflows, the oldest first: where each stands and since when, and whether a wait or an event of
-- it is there still.
select workflow.seq, workflow.tenant, workflow.workflow_id, workflow.created_at, thread.status, thread.version,
  thread.updated_at, {now} as now,
  coalesce(
    (
      select 1
      from counterfoil_wait wait
      where wait.tenant = workflow.tenant
        and wait.thread_id = workflow.workflow_id
      limit 1
    ),
    (
      select 1
      from counterfoil_event event
      where event.tenant = workflow.tenant
        and event.workflow_id = workflow.workflow_id
      limit 1
    ),
    0
  ) as has_any
from counterfoil_workflow workflow
join counterfoil_thread thread
  on thread.tenant = workflow.tenant
  and thread.thread_id = workflow.workflow_id
where workflow.tenant = :tenant
  and workflow.seq > :after
order by workflow.seq
limit :limit;

-- name: forget_waits_if_unmoved
-- Delete some waits of a workflow that has ended, unless it moved since it was read.
delete from counterfoil_wait
where tenant = :tenant
  and thread_id = :thread_id
  and (task_id, name, number) in (
    select wait.task_id, wait.name, wait.number
    from counterfoil_wait wait
    join counterfoil_thread thread
      on thread.tenant = wait.tenant
      and thread.thread_id = wait.thread_id
    where wait.tenant = :tenant
      and wait.thread_id = :thread_id
      and thread.version = :version
    limit :limit
  )
returning name;

-- name: forget_events_if_unmoved
-- Delete some events of a workflow that has ended, of those that came up to a time, unless it moved since it was read.
delete from counterfoil_event
where tenant = :tenant
  and seq in (
    select event.seq
    from counterfoil_event event
    join counterfoil_thread thread
      on thread.tenant = event.tenant
      and thread.thread_id = event.workflow_id
    where event.tenant = :tenant
      and event.workflow_id = :thread_id
      and event.received_at <= :until
      and thread.version = :version
    limit :limit
  )
returning seq;
