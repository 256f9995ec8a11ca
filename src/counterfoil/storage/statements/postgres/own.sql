-- name: record_own_statement
-- Run the statement that an effect is, in place of the one in parentheses, and insert its operation with the row that it
-- returned: all of it or nothing. An operation that exists, no row, or several break it on a constraint of its table.
-- differs: only here; SQLite has no statement that writes two tables.
with own_row as (
  select 1 as own_statement
)
insert into counterfoil_operation (tenant, operation_id, effect, effect_version, sender, state, identity_digest,
  content_digest, field_digests, provider, attempt, fence, version, claimed_at, first_attempt_at, receipt, settled_by,
  request_id, workflow_id, principal, thread_id, checkpoint_ns, checkpoint_id, node, task_id, run_id, trace_id,
  created_at, updated_at, settled_at)
select :tenant, :operation_id, :effect, :effect_version,
  -- null for the column that says what was wrong: none of these may be null
  case when count(*) <= 1 then :sender end, case when count(*) >= 1 then :state end, :identity_digest,
  :content_digest, :field_digests, :provider, 1, 1, 1, {now}, {now},
  cast(decode('02', 'hex') || convert_to(min(cast(row_to_json(own_row) as text)), 'UTF8') as bytea), :settled_by,
  :request_id, :workflow_id, :principal, :thread_id, :checkpoint_ns, :checkpoint_id, :node, :task_id, :run_id, :trace_id,
  {now}, {now}, {now}
from own_row
returning tenant, operation_id, effect, effect_version, identity_digest, attempt, state, receipt, receipt_marker,
  evidence, settled_at
