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
