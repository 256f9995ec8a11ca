-- name: put_branch
-- Begin a thread for a branch, unless the name is another's: nobody runs it yet, and it inherits what is trusted.
insert into counterfoil_thread (tenant, thread_id, state, request_id, workflow_id, principal, branch, branched_from,
  branched_at, plain_thread_id, created_at, updated_at)
values (:tenant, :thread_id, :state, :request_id, :workflow_id, :principal, :branch, :branched_from,
  :branched_at, :plain_thread_id, {now}, {now})
on conflict (tenant, thread_id) do update
set version = counterfoil_thread.version + 1,
  request_id = excluded.request_id,
  workflow_id = excluded.workflow_id,
  principal = excluded.principal,
  branch = excluded.branch,
  branched_from = excluded.branched_from,
  branched_at = excluded.branched_at,
  plain_thread_id = excluded.plain_thread_id,
  updated_at = {now}
where counterfoil_thread.state = :state
  and counterfoil_thread.branched_from is null
returning version;
