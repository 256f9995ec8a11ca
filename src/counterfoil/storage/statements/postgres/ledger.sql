-- fragment: seen
-- What decisions and receipts are made of, as `look_at_operation` reads it, and the time.
tenant, operation_id, effect, identity_digest, effect_version, attempt, state, receipt, receipt_marker, evidence,
  settled_at, sender, content_digest, field_digests, provider, fence, version, holder, claimed_at, lease_until,
  attempt_deadline, first_attempt_at, payload, error_class, error_text, decide_by, approved_until, {now} as now

-- name: look_or_claim_operation
-- Read an operation as `look_at_operation` does, or begin it as `insert_claimed_operation` does, and tell when; `claimed`
-- says which. It returns nothing if another caller began it in this moment.
-- differs: only here, where it saves a round trip; on SQLite a read costs none and needs no lock.
with seen as (
  select {seen}
  from counterfoil_operation
  where tenant = :tenant
    and operation_id = :operation_id
),
made as (
  insert into counterfoil_operation (tenant, operation_id, effect, effect_version, sender, state, identity_digest,
    content_digest, field_digests, payload, provider, attempt, fence, version, holder, claimed_at, lease_until,
    attempt_deadline, first_attempt_at, request_id, workflow_id, principal, thread_id, checkpoint_ns, checkpoint_id,
    node, task_id, run_id, trace_id, created_at, updated_at)
  select :tenant, :operation_id, :effect, :effect_version, :sender, :state, :identity_digest,
    :content_digest, :field_digests, :payload, :provider, 1, 1, 1, :holder, {now}, {now} + :lease,
    {now} + :time_limit, {now}, :request_id, :workflow_id, :principal, :thread_id, :checkpoint_ns, :checkpoint_id,
    :node, :task_id, :run_id, :trace_id, {now}, {now}
  where not exists (select 1 from seen)
  on conflict (tenant, operation_id) do nothing
  returning {now} as now
)
select false as claimed, seen.*
from seen
union all
select true, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
  null, null, null, null, null, null, null, null, null, made.now
from made;
