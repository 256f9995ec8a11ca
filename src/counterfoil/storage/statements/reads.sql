-- fragment: columns
-- An operation as lists show it: never the payload, never the receipt's value.
seq, tenant, operation_id, effect, effect_version, sender, state, identity_digest, provider, attempt, version,
  holder, claimed_at, lease_until, attempt_deadline, first_attempt_at, receipt_marker, settled_by, error_class,
  error_text, request_id, workflow_id, principal, thread_id, checkpoint_ns, checkpoint_id, node, task_id, run_id,
  trace_id, created_at, updated_at, settled_at, stream, due_at, expires_at, max_attempts, {now} as now

-- fragment: filters
-- What narrows a list beyond the index that drives it; null leaves a filter out.
and (cast(:state as text) is null or state = :state)
  and (cast(:effect as text) is null or effect = :effect)
  and (cast(:sender as text) is null or sender = :sender)
  and (cast(:thread_id as text) is null or thread_id = :thread_id)
  and (cast(:older_than as bigint) is null or created_at <= {now} - :older_than)
  and (cast(:newer_than as bigint) is null or created_at > {now} - :newer_than)

-- fragment: page
-- One page: where the page before ended, the newest first.
and seq < :before
  {filters}
order by seq desc
limit :limit

-- name: list_operations
-- Page through a tenant's operations, the newest first.
select {columns}
from counterfoil_operation
where tenant = :tenant
  {page};

-- name: list_operations_in_state
-- Page through a tenant's operations in one state that is not the usual end of them; those have an index of their own,
-- which the last condition admits.
select {columns}
from counterfoil_operation
where tenant = :tenant
  and state = :in_state
  and state <> 'succeeded'
  {page};

-- name: list_operations_of_request
-- Page through the operations of one business request.
select {columns}
from counterfoil_operation
where tenant = :tenant
  and request_id = :request_id
  {page};

-- name: list_operations_of_thread
-- Page through the operations of one LangGraph thread.
select {columns}
from counterfoil_operation
where tenant = :tenant
  and thread_id = :thread_id
  {page};

-- name: list_operations_of_stream
-- Page through what is not settled of one stream.
select {columns}
from counterfoil_operation
where tenant = :tenant
  and stream = :stream
  and stream is not null
  and settled_at is null
  {page};

-- name: list_tenants_any_tenant
-- Name the tenants by jumping from one to the next in the index: for the operator of the database only.
with recursive named (tenant) as (
  select min(tenant) from counterfoil_operation
  union all
  select (select min(o.tenant) from counterfoil_operation o where o.tenant > named.tenant)
  from named
  where named.tenant is not null
)
select tenant
from named
where tenant is not null;

-- name: find_operations
-- Find a tenant's operations by an id of any kind, each kind by its own index.
select 'operation' as found_by, {columns} from counterfoil_operation
where tenant = :tenant and operation_id = :id
union all
select * from (
  select 'request' as found_by, {columns} from counterfoil_operation
  where tenant = :tenant and request_id = :id
  order by seq desc
  limit :limit) as by_request
union all
select * from (
  select 'workflow' as found_by, {columns} from counterfoil_operation
  where tenant = :tenant and workflow_id = :id
  order by seq desc
  limit :limit) as by_workflow
union all
select * from (
  select 'thread' as found_by, {columns} from counterfoil_operation
  where tenant = :tenant and thread_id = :id
  order by seq desc
  limit :limit) as by_thread
union all
select * from (
  select 'checkpoint' as found_by, {columns} from counterfoil_operation
  where tenant = :tenant and checkpoint_id = :id
  order by seq desc
  limit :limit) as by_checkpoint
union all
select * from (
  select 'run' as found_by, {columns} from counterfoil_operation
  where tenant = :tenant and run_id = :id
  order by seq desc
  limit :limit) as by_run
union all
select * from (
  select 'trace' as found_by, {columns} from counterfoil_operation
  where tenant = :tenant and trace_id = :id
  order by seq desc
  limit :limit) as by_trace;

-- name: find_operations_by_prefix
-- Find a tenant's operations whose id begins with a text.
select {columns}
from counterfoil_operation
where tenant = :tenant
  and operation_id >= :prefix
  and operation_id < :beyond
order by operation_id
limit :limit;

-- name: list_operation_ids
-- Page through a tenant's operation ids, to compare the provider key that is derived from each.
select seq, operation_id
from counterfoil_operation
where tenant = :tenant
  and seq > :after
order by seq
limit :limit;

-- name: count_operations
-- Count a tenant's operations by state.
select state, count(*) as n
from counterfoil_operation
where tenant = :tenant
group by state;

-- name: list_attempts
-- Read all attempts of one operation; one that runs, or that succeeded under its claim, is in the operation's row.
select attempt, fence, holder, started_at, deadline, outcome, ended_at, error_class, error_text
from counterfoil_attempt
where tenant = :tenant
  and operation_id = :operation_id
union all
select attempt, fence, holder, claimed_at, attempt_deadline,
  case when settled_at is null then 'running' else 'succeeded' end, settled_at, error_class, error_text
from counterfoil_operation
where tenant = :tenant
  and operation_id = :operation_id
  and holder is not null
order by attempt;

-- name: list_evidence
-- Read all evidence about one operation, in the order in which it came.
select attempt, kind, answer, body, given_by, at
from counterfoil_evidence
where tenant = :tenant
  and operation_id = :operation_id
order by seq;

-- name: list_cases_of_operation
-- Read all cases of one operation.
select *
from counterfoil_case
where tenant = :tenant
  and operation_id = :operation_id
order by seq;

-- name: list_cases
-- Page through a tenant's cases, the oldest first.
select *
from counterfoil_case
where tenant = :tenant
  and seq > :after
order by seq
limit :limit;

-- name: list_cases_in_state
-- Page through a tenant's cases that are open, or resolved, or settled; the oldest first.
select *
from counterfoil_case
where tenant = :tenant
  and state = :state
  and seq > :after
order by seq
limit :limit;
