-- name: list_all_operations
-- Read every operation, for those who judge a whole database; it scans.
select *, {now} as now
from counterfoil_operation
order by seq;

-- name: list_all_attempts
-- Read every attempt, wherever its record is; it scans.
select *
from counterfoil_attempt
union all
select tenant, operation_id, attempt, fence, holder, claimed_at, attempt_deadline,
  case when settled_at is null then 'running' else 'succeeded' end, settled_at, error_class, error_text
from counterfoil_operation
where holder is not null
order by tenant, operation_id, attempt;

-- name: list_all_cases
-- Read every case; it scans.
select *
from counterfoil_case
order by seq;

-- name: list_all_evidence
-- Read all evidence; it scans.
select *
from counterfoil_evidence
order by seq;

-- name: compare_clocks
-- Read the database's time, and the newest one in its latest rows: one that lies ahead was written by another clock.
select {now} as now, max(at) as newest
from (
  select max(updated_at) as at from counterfoil_operation
  where seq > (select max(seq) from counterfoil_operation) - 1000
  union all
  select max(created_at) from counterfoil_checkpoint
  where seq > (select max(seq) from counterfoil_checkpoint) - 1000
  union all
  select max(at) from counterfoil_evidence
  where seq > (select max(seq) from counterfoil_evidence) - 1000
) latest;
