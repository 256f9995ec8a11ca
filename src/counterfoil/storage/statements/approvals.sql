-- name: insert_approval
-- Ask whether an operation may be sent.
insert into counterfoil_approval (tenant, operation_id, root_id, number, state, effect, effect_version, content_digest,
  asker, requested_by, requested_at, decide_by, valid_for, needs_another, edited_by, follows)
values (:tenant, :operation_id, :root_id,
  (select count(*) + 1 from counterfoil_approval earlier
   where earlier.tenant = :tenant and earlier.operation_id = :operation_id),
  :state, :effect, :effect_version, :content_digest, :asker, :requested_by, {now}, :decide_by, :valid_for,
  :needs_another, :edited_by, :follows)
returning *, {now} as now;

-- name: get_approval
-- Read one approval, with the database's time.
select *, {now} as now
from counterfoil_approval
where tenant = :tenant
  and seq = :seq;

-- name: get_newest_approval
-- Read what was asked last about an operation.
select *, {now} as now
from counterfoil_approval
where tenant = :tenant
  and operation_id = :operation_id
order by number desc
limit 1;

-- name: list_approvals_of_operation
-- Read all that was asked about one operation, in the order in which it was.
select *, {now} as now
from counterfoil_approval
where tenant = :tenant
  and operation_id = :operation_id
order by number;

-- name: get_approval_of_asker
-- Read what was asked last for one asker about an operation and those that follow it.
select *, {now} as now
from counterfoil_approval
where tenant = :tenant
  and root_id = :root_id
  and asker = :asker
order by seq desc
limit 1;

-- name: get_newest_follower
-- Read the number of the last operation that follows one which was edited; null if none does.
select max(cast(substr(operation_id, cast(:digits_from as integer)) as integer)) as number
from counterfoil_approval
where tenant = :tenant
  and root_id = :root_id
  and operation_id <> root_id;

-- name: list_approvals
-- Page through a tenant's approvals, the oldest first.
select *, {now} as now
from counterfoil_approval
where tenant = :tenant
  and seq > :after
order by seq
limit :limit;

-- name: list_approvals_in_state
-- Page through a tenant's approvals that are pending, or decided in one way; the oldest first.
select *, {now} as now
from counterfoil_approval
where tenant = :tenant
  and state = :state
  and seq > :after
order by seq
limit :limit;

-- name: list_approvals_of_root
-- Read all that was asked under one intent: about an operation, and those that follow it.
select *, {now} as now
from counterfoil_approval
where tenant = :tenant
  and root_id = :root_id
order by seq;

-- name: decide_approval_if_unmoved
-- Record a decision, unless another one was first.
update counterfoil_approval
set state = :state,
  decided_by = :decided_by,
  reason = :reason,
  decided_at = {now},
  valid_until = case when :permits then {now} + valid_for else valid_until end,
  followed_by = :followed_by
where tenant = :tenant
  and seq = :seq
  and state = :expected_state
returning *, {now} as now;

-- name: spend_approval
-- Note that an operation was sent under the decision that holds.
update counterfoil_approval
set spent_at = coalesce(spent_at, {now})
where tenant = :tenant
  and operation_id = :operation_id
  and state = :state
returning seq;

-- name: give_decision_back
-- Take back that an operation was sent under the decision that holds, if its last claim was the first under it.
update counterfoil_approval
set spent_at = null
where tenant = :tenant
  and operation_id = :operation_id
  and state = :state
  and spent_at >= :claimed_at
returning seq;

-- name: leave_decision_unused
-- Take back that an operation was sent under the decision that holds: each attempt provably sent nothing.
update counterfoil_approval
set spent_at = null
where tenant = :tenant
  and operation_id = :operation_id
  and state = :state
  and spent_at is not null
returning seq;

-- name: permit_operation_if_unmoved
-- Let an operation be sent, until its decision runs out.
update counterfoil_operation
set state = :state,
  version = version + 1,
  decide_by = null,
  approved_until = :approved_until,
  due_at = {most}(due_at, {now}),
  updated_at = {now}
where tenant = :tenant
  and operation_id = :operation_id
  and version = :version
  and state = :expected_state
returning *, {now} as now;

-- name: hold_operation_if_unmoved
-- Keep an operation from being sent until somebody has decided.
update counterfoil_operation
set state = :state,
  version = version + 1,
  decide_by = {now} + :decide_within,
  approved_until = 0,
  updated_at = {now}
where tenant = :tenant
  and operation_id = :operation_id
  and version = :version
  and state = :expected_state
returning *, {now} as now;

-- name: insert_follower
-- Record an operation that follows an edited one: the same, with other arguments, and not to be sent before a decision,
-- which is waited for no longer than it would be sent.
insert into counterfoil_operation (tenant, operation_id, effect, effect_version, sender, state, identity_digest,
  content_digest, field_digests, payload, provider, request_id, workflow_id, principal, thread_id, checkpoint_ns,
  checkpoint_id, node, task_id, run_id, trace_id, created_at, updated_at, stream, due_at, expires_at, max_attempts,
  time_limit, lease, decide_by, approved_until)
select tenant, :follower_id, effect, effect_version, sender, :state, :identity_digest,
  :content_digest, :field_digests, :payload, provider, request_id, workflow_id, principal, thread_id, checkpoint_ns,
  checkpoint_id, node, task_id, run_id, trace_id, {now}, {now}, stream, due_at, expires_at, max_attempts,
  time_limit, lease, case when expires_at < {now} + :decide_within then expires_at else {now} + :decide_within end, 0
from counterfoil_operation
where tenant = :tenant
  and operation_id = :operation_id
returning *, {now} as now;

-- name: hand_to_dispatcher_if_unsent
-- Let a dispatcher send what its caller has had approved and has not sent.
update counterfoil_operation
set sender = :sender,
  version = version + 1,
  stream = :stream,
  due_at = {most}(:due_at, {now} + :delay),
  expires_at = {now} + :time_to_live,
  decide_by = case when decide_by > {now} + :time_to_live then {now} + :time_to_live else decide_by end,
  max_attempts = :max_attempts,
  time_limit = :time_limit,
  lease = :lease,
  updated_at = {now}
where tenant = :tenant
  and operation_id = :operation_id
  and version = :version
  and attempt = 0
returning *, {now} as now;

-- name: list_undecided
-- Read the operations about which nobody decided in time.
select tenant, operation_id, version
from counterfoil_operation
where state = 'awaiting_approval'
  and decide_by <= {now}
order by decide_by
limit :limit;

-- name: list_unpermitted
-- Read the operations whose decision ran out before they were sent.
select tenant, operation_id, version
from counterfoil_operation
where state = 'pending'
  and approved_until is not null
  and approved_until <= {now}
order by approved_until
limit :limit;

-- name: list_undone_of_thread
-- Read the operations of a thread that wait for a decision, or for their own step to send them after one.
select operation_id
from counterfoil_operation
where tenant = :tenant
  and thread_id = :thread_id
  and thread_id is not null
  and settled_at is null
  and (state = 'awaiting_approval' or (state = 'pending' and sender = 'caller' and approved_until is not null))
order by operation_id;

-- name: wake_decided_thread
-- Let a workflow be due that waits for a decision: at once, or as soon as its run ends, which may be about to wait.
update counterfoil_thread
set due_at = {now}
where tenant = :tenant
  and thread_id = :thread_id
  and (status = 'running' or (status is not null and parked_on is not null))
returning status, graph, graph_version;
