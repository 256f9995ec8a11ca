-- fragment: sent
-- What sending an intent takes.
seq, tenant, operation_id, effect, effect_version, identity_digest, content_digest, payload, attempt, fence, holder,
  claimed_at, attempt_deadline, approved_until, request_id, workflow_id, principal, thread_id, stream, due_at

-- name: insert_intent
-- Record an operation that a dispatcher will send once this transaction is committed.
insert into counterfoil_operation (tenant, operation_id, effect, effect_version, sender, state, identity_digest,
  content_digest, field_digests, payload, provider, request_id, workflow_id, principal, thread_id, checkpoint_ns,
  checkpoint_id, node, task_id, run_id, trace_id, created_at, updated_at, stream, due_at, expires_at, max_attempts,
  time_limit, lease, decide_by, approved_until)
values (:tenant, :operation_id, :effect, :effect_version, :sender, :state, :identity_digest,
  :content_digest, :field_digests, :payload, :provider, :request_id, :workflow_id, :principal, :thread_id,
  :checkpoint_ns, :checkpoint_id, :node, :task_id, :run_id, :trace_id, {now}, {now}, :stream,
  {most}(:due_at, {now} + :delay), {now} + :time_to_live, :max_attempts, :time_limit, :lease, {now} + :decide_within, :approved_until)
on conflict (tenant, operation_id) do nothing
{told};

-- name: list_due_effects
-- Say of which effects, each asked for in one version, intents are due: one look each, where claims would be statements.
select asked.key as effect
from {asked_channels} asked
where exists (
  select 1
  from counterfoil_operation intent
  where intent.state = 'pending'
    and intent.sender = 'dispatcher'
    and intent.effect = asked.key
    and intent.effect_version = cast(asked.value as bigint)
    and intent.due_at <= {now}
);

-- name: claim_due
-- Claim the intents of one effect that are due, the longest due first: of a stream the first that is not settled alone,
-- and none that is paused. `since` skips what was seen to be settled; a search from the beginning follows now and then.
with due (owner, number) as materialized (
  select intent.tenant, intent.seq
  from counterfoil_operation intent
  where intent.state = 'pending'
    and intent.sender = 'dispatcher'
    and intent.effect = :effect
    and intent.effect_version = :effect_version
    and intent.due_at >= :since
    and intent.due_at <= {now}
    and (intent.expires_at is null or intent.expires_at > {now})
    and (intent.approved_until is null or intent.approved_until > {now})
    and (intent.stream is null or not exists (
      select 1
      from counterfoil_operation earlier
      where earlier.tenant = intent.tenant
        and earlier.stream = intent.stream
        and earlier.stream is not null
        and earlier.settled_at is null
        and earlier.seq < intent.seq
    ))
    and not exists (
      select 1
      from counterfoil_pause pause
      where pause.tenant in ('', intent.tenant)
        and pause.effect in ('', intent.effect)
        and pause.stream in ('', coalesce(intent.stream, ''))
    )
  order by intent.due_at, intent.seq
  limit :limit
  {skipping}
)
update counterfoil_operation
set state = :state,
  attempt = attempt + 1,
  fence = fence + 1,
  version = version + 1,
  holder = :holder,
  claimed_at = {now},
  lease_until = {now} + :patience + lease,
  attempt_deadline = {now} + :patience + time_limit,
  first_attempt_at = case when first_attempt_at = 0 then {now} else first_attempt_at end,
  error_class = null,
  error_text = null,
  updated_at = {now}
from due
where tenant = due.owner
  and seq = due.number
returning {sent};

-- name: lock_operation_if_free
-- Read one operation whole, with the database's time, and keep others from moving it until this transaction ends; none
-- where another transaction has it, which may be that of a worker that was stopped.
select *, {now} as now
from counterfoil_operation
where tenant = :tenant
  and operation_id = :operation_id
{skipping};

-- name: list_held
-- Read the intents that one claim holds: whether it took effect, where nobody heard of its COMMIT.
select {sent}
from counterfoil_operation
where state = 'in_flight'
  and sender = 'dispatcher'
  and lease_until > 0
  and holder = :holder
order by lease_until;

-- name: release_if_fenced
-- Give an intent back whose effect did not begin: no attempt was made.
update counterfoil_operation
set state = :state,
  attempt = attempt - 1,
  version = version + 1,
  holder = null,
  lease_until = 0,
  first_attempt_at = case when attempt = 1 then 0 else first_attempt_at end,
  due_at = {now} + :delay,
  updated_at = {now}
where tenant = :tenant
  and operation_id = :operation_id
  and fence = :fence
  and state = :expected_state
returning claimed_at, approved_until;

-- name: postpone_intent
-- Let an intent wait before its next attempt: for a pause, some of it taken off at random so that workers do not come in
-- step, or for as long as its provider asked. It waits no longer than until `expires_at`; the time to live was for the
-- first attempt.
update counterfoil_operation
set due_at = {now} + {most}(cast(:pause * (1 - {chance} / 2) as integer), :delay),
  expires_at = :expires_at
where tenant = :tenant
  and operation_id = :operation_id
  and state = :expected_state
  and sender = 'dispatcher'
returning due_at;

-- name: postpone_look_up
-- Say when an unknown outcome is to be looked up next.
update counterfoil_operation
set due_at = {most}(:due_at, {now} + :delay)
where tenant = :tenant
  and operation_id = :operation_id
  and version = :version
  and state = 'unknown'
returning due_at;

-- name: list_lapsed_intents
-- Read the intents whose claim is over: the worker died or was too slow.
select tenant, operation_id, version
from counterfoil_operation
where state = 'in_flight'
  and sender = 'dispatcher'
  and lease_until <= {now}
order by lease_until
limit :limit;

-- name: list_unknown_due
-- Read the operations whose outcome is unknown and whose next look-up is due.
select *, {now} as now
from counterfoil_operation
where state = 'unknown'
  and due_at <= {now}
order by due_at
limit :limit;

-- name: list_expired_intents
-- Read the intents that were not sent in the time they had: for a first attempt, or to be sent again under a key.
select tenant, operation_id, version
from counterfoil_operation
where state = 'pending'
  and expires_at is not null
  and expires_at <= {now}
order by expires_at
limit :limit;

-- name: close_intent_if_unmoved
-- End an intent that was never sent, unless it moved since it was read.
update counterfoil_operation
set state = :state,
  version = version + 1,
  payload = null,
  error_text = :error_text,
  updated_at = {now},
  settled_at = {now}
where tenant = :tenant
  and operation_id = :operation_id
  and version = :version
  and state = :expected_state
returning *, {now} as now;

-- name: renew_tries_if_unmoved
-- Let an intent be tried at once and so many times more, for as long as that takes.
update counterfoil_operation
set state = :state,
  version = version + 1,
  due_at = {now},
  expires_at = null,
  max_attempts = attempt + :more,
  updated_at = {now}
where tenant = :tenant
  and operation_id = :operation_id
  and version = :version
  and state = :expected_state
returning *, {now} as now;

-- name: hasten_intent_if_unmoved
-- End an intent's wait for its next attempt.
update counterfoil_operation
set due_at = {least}(due_at, {now}),
  version = version + 1,
  updated_at = {now}
where tenant = :tenant
  and operation_id = :operation_id
  and version = :version
  and state = :expected_state
  and sender = 'dispatcher'
returning *, {now} as now;

-- name: get_stream_head
-- Find what an intent waits for: the first of its stream that is not settled.
select operation_id, state
from counterfoil_operation
where tenant = :tenant
  and stream = :stream
  and stream is not null
  and settled_at is null
  and seq < :before
order by seq
limit 1;

-- name: get_pause
-- Read the pause of exactly this name.
select *
from counterfoil_pause
where tenant = :tenant
  and effect = :effect
  and stream = :stream;

-- name: put_pause
-- Keep intents back: of a tenant, an effect, a stream, or all; an empty name stands for any.
insert into counterfoil_pause (tenant, effect, stream, paused_by, reason, at)
values (:tenant, :effect, :stream, :paused_by, :reason, {now})
on conflict (tenant, effect, stream) do update
set paused_by = excluded.paused_by,
  reason = excluded.reason,
  at = excluded.at
returning *;

-- name: delete_pause
-- Let intents go again.
delete from counterfoil_pause
where tenant = :tenant
  and effect = :effect
  and stream = :stream
returning *;

-- name: list_pauses
-- Read what is kept back.
select *
from counterfoil_pause
order by tenant, effect, stream;
