-- fragment: receipt
-- What a receipt is made of.
tenant, operation_id, effect, effect_version, identity_digest, attempt, state, receipt, receipt_marker, evidence,
  settled_at

-- name: insert_claimed_operation
-- Begin an operation that nobody has asked for yet, already claimed by its caller.
insert into counterfoil_operation (tenant, operation_id, effect, effect_version, sender, state, identity_digest,
  content_digest, field_digests, payload, provider, attempt, fence, version, holder, claimed_at, lease_until,
  attempt_deadline, first_attempt_at, request_id, workflow_id, principal, thread_id, checkpoint_ns, checkpoint_id,
  node, task_id, run_id, trace_id, created_at, updated_at)
values (:tenant, :operation_id, :effect, :effect_version, :sender, :state, :identity_digest,
  :content_digest, :field_digests, :payload, :provider, 1, 1, 1, :holder, {now}, {now} + :lease,
  {now} + :time_limit, {now}, :request_id, :workflow_id, :principal, :thread_id, :checkpoint_ns, :checkpoint_id,
  :node, :task_id, :run_id, :trace_id, {now}, {now})
on conflict (tenant, operation_id) do nothing
{told};

-- name: look_at_operation
-- Read what decisions and receipts are made of, with the database's time: each column more would slow every answer down.
select {receipt}, sender, content_digest, field_digests, provider, fence, version, holder, claimed_at, lease_until,
  attempt_deadline, first_attempt_at, payload, error_class, error_text, decide_by, approved_until, {now} as now
from counterfoil_operation
where tenant = :tenant
  and operation_id = :operation_id;

-- name: lock_operation
-- Read one operation whole, with the database's time, and keep others from moving it until this transaction ends. It
-- comes before all other rows of the operation in every transaction that writes, so that no two wait for each other.
select *, {now} as now
from counterfoil_operation
where tenant = :tenant
  and operation_id = :operation_id
{locked};

-- name: get_operation
-- Read one operation whole, with the database's time.
select *, {now} as now
from counterfoil_operation
where tenant = :tenant
  and operation_id = :operation_id;

-- name: take_operation_if_unmoved
-- Claim an operation for its next attempt unless it moved since it was read, or its decision ran out: whoever waited for
-- its lock read it with the time of before.
update counterfoil_operation
set state = :state,
  attempt = attempt + 1,
  fence = fence + 1,
  version = version + 1,
  holder = :holder,
  claimed_at = {now},
  lease_until = {now} + :lease,
  attempt_deadline = {now} + :time_limit,
  first_attempt_at = case when first_attempt_at = 0 then {now} else first_attempt_at end,
  error_class = null,
  error_text = null,
  updated_at = {now}
where tenant = :tenant
  and operation_id = :operation_id
  and version = :version
  and not coalesce(approved_until <= {now}, false)
returning attempt, fence, claimed_at, attempt_deadline, payload, approved_until;

-- name: renew_lease_if_fenced
-- Heartbeat: extend the lease, never beyond the attempt's deadline.
update counterfoil_operation
set lease_until = {least}(attempt_deadline, {now} + :lease)
where tenant = :tenant
  and operation_id = :operation_id
  and fence = :fence
  and state = :expected_state
returning lease_until, attempt_deadline, {now} as now;

-- fragment: outcome
-- What is recorded of an outcome, from whatever source it comes; the payload goes with the last retry.
payload = case when :terminal then null else payload end,
  receipt = :receipt,
  receipt_marker = :receipt_marker,
  settled_by = :settled_by,
  evidence = :evidence,
  error_class = :error_class,
  error_text = :error_text,
  updated_at = {now},
  settled_at = case when :terminal then {now} else null end

-- name: settle_if_fenced
-- Record an attempt's outcome if this caller still holds the claim. While the holder stays, the attempt's record is in
-- this row.
update counterfoil_operation
set state = :state,
  version = version + 1,
  holder = case when :keeps_attempt then holder else null end,
  lease_until = 0,
  {outcome}
where tenant = :tenant
  and operation_id = :operation_id
  and fence = :fence
  and state = :expected_state
{told};

-- name: settle_if_unmoved
-- Record an outcome learnt by other means, unless the operation moved since it was read.
update counterfoil_operation
set state = :state,
  version = version + 1,
  holder = null,
  lease_until = 0,
  {outcome}
where tenant = :tenant
  and operation_id = :operation_id
  and version = :version
returning *, {now} as now;

-- name: archive_attempt
-- Give the attempt that a claim stands for a record of its own, before the operation's row moves on from it.
insert into counterfoil_attempt (tenant, operation_id, attempt, fence, holder, started_at, deadline, outcome, ended_at,
  error_class, error_text)
select tenant, operation_id, attempt, fence, holder, claimed_at, attempt_deadline, :outcome, {now},
  :error_class, :error_text
from counterfoil_operation
where tenant = :tenant
  and operation_id = :operation_id
  and fence = :fence
  and state = :expected_state
returning attempt;

-- name: end_attempt_if_weaker
-- Record what became of an earlier attempt, unless better is known of it; `replaces` lists what it may replace.
update counterfoil_attempt
set outcome = :outcome,
  ended_at = {now},
  error_class = coalesce(:error_class, error_class),
  error_text = coalesce(:error_text, error_text)
where tenant = :tenant
  and operation_id = :operation_id
  and attempt = :attempt
  and :replaces like '%"' || outcome || '"%'
returning attempt;

-- name: end_lost_attempts
-- Record what became of all attempts of an operation whose outcome was lost.
update counterfoil_attempt
set outcome = :outcome,
  ended_at = {now}
where tenant = :tenant
  and operation_id = :operation_id
  and outcome = :lost
returning attempt;

-- name: get_proof_before
-- Find what an earlier attempt returned after its claim was lost: proof that the operation happened.
select evidence.body, evidence.attempt
from counterfoil_evidence evidence
join counterfoil_attempt attempt
  on attempt.tenant = evidence.tenant
  and attempt.operation_id = evidence.operation_id
  and attempt.attempt = evidence.attempt
where evidence.tenant = :tenant
  and evidence.operation_id = :operation_id
  and evidence.kind = :kind
  and evidence.body is not null
  and attempt.attempt < :attempt
  and attempt.outcome = :outcome
order by evidence.seq desc
limit 1;

-- name: get_lost_attempt_before
-- Find an earlier attempt whose outcome was lost.
select attempt
from counterfoil_attempt
where tenant = :tenant
  and operation_id = :operation_id
  and attempt < :attempt
  and outcome = :outcome
limit 1;

-- name: insert_evidence
-- Keep a piece of evidence; evidence is never altered or dropped.
insert into counterfoil_evidence (tenant, operation_id, attempt, kind, answer, body, given_by, at)
values (:tenant, :operation_id, :attempt, :kind, :answer, :body, :given_by, {now})
returning seq;

-- name: open_case
-- Open a case unless one of its kind is open already.
insert into counterfoil_case (tenant, operation_id, kind, state, attempt, reason, opened_at)
values (:tenant, :operation_id, :kind, :state, :attempt, :reason, {now})
on conflict (tenant, operation_id, kind) where state = 'open' do update set reason = excluded.reason
returning *;

-- name: settle_open_case
-- Close an operation's open case of one kind because evidence answered it.
update counterfoil_case
set state = :state,
  version = version + 1
where tenant = :tenant
  and operation_id = :operation_id
  and kind = :kind
  and state = :expected_state
returning seq;

-- name: get_case
-- Read one case.
select *
from counterfoil_case
where tenant = :tenant
  and seq = :seq;

-- name: get_open_case
-- Read an operation's open case of one kind.
select *
from counterfoil_case
where tenant = :tenant
  and operation_id = :operation_id
  and kind = :kind
  and state = :expected_state;

-- name: resolve_case_if_unmoved
-- Record a person's verdict unless the case moved since it was read.
update counterfoil_case
set state = :state,
  version = version + 1,
  verdict = :verdict,
  verdict_by = :verdict_by,
  verdict_reason = :verdict_reason,
  verdict_at = {now}
where tenant = :tenant
  and seq = :seq
  and version = :version
  and state = :expected_state
returning *;

-- name: renew_case_if_unmoved
-- Count a change of a closed case: its verdict stays, and what it lacked was given.
update counterfoil_case
set state = :state,
  version = version + 1
where tenant = :tenant
  and seq = :seq
  and version = :version
  and state = :expected_state
returning *;

-- name: give_value_if_missing
-- Give a receipt the value that its verdict did not, unless the operation moved or has one.
update counterfoil_operation
set receipt = :receipt,
  receipt_marker = null,
  version = version + 1,
  updated_at = {now}
where tenant = :tenant
  and operation_id = :operation_id
  and version = :version
  and receipt_marker = :expected_marker
returning *, {now} as now;
