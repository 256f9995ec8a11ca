-- name: settle_all_if_fenced
-- Record that these effects happened, each if its claim still holds, as `settle_if_fenced` does one by one.
-- differs: only here, where each row would take a round trip of its own.
update counterfoil_operation
set state = :state,
  version = version + 1,
  lease_until = 0,
  payload = null,
  receipt = given.receipt,
  receipt_marker = given.marker,
  settled_by = :settled_by,
  evidence = given.evidence,
  error_class = null,
  error_text = null,
  updated_at = {now},
  settled_at = {now}
from unnest(cast(:tenants as text[]), cast(:operation_ids as text[]), cast(:fences as bigint[]),
  cast(:receipts as bytea[]), cast(:markers as text[]), cast(:evidences as bytea[]))
  given (owner, id, held, receipt, marker, evidence)
where tenant = given.owner
  and operation_id = given.id
  and fence = given.held
  and state = :expected_state
returning tenant, operation_id, {now} as now;

-- name: insert_intents
-- Record operations that a dispatcher will send, as `insert_intent` does one by one; those that are there are left out.
-- differs: only here, where each row would take a round trip of its own.
insert into counterfoil_operation (tenant, operation_id, effect, effect_version, sender, state, identity_digest,
  content_digest, field_digests, payload, provider, request_id, workflow_id, principal, thread_id, checkpoint_ns,
  checkpoint_id, node, task_id, run_id, trace_id, created_at, updated_at, stream, due_at, expires_at, max_attempts,
  time_limit, lease, decide_by, approved_until)
select :tenant, given.id, :effect, :effect_version, :sender, :state, given.identity,
  given.content, given.fields, given.payload, :provider, :request_id, :workflow_id, :principal, :thread_id,
  :checkpoint_ns, :checkpoint_id, :node, :task_id, :run_id, :trace_id, {now}, {now}, given.stream,
  {most}(:due_at, {now} + :delay), {now} + :time_to_live, :max_attempts, :time_limit, :lease,
  {now} + :decide_within, :approved_until
from unnest(cast(:operation_ids as text[]), cast(:identities as bytea[]), cast(:contents as bytea[]),
  cast(:all_fields as bytea[]), cast(:payloads as bytea[]), cast(:streams as text[]))
  with ordinality given (id, identity, content, fields, payload, stream, number)
order by given.number
on conflict (tenant, operation_id) do nothing
returning operation_id;
