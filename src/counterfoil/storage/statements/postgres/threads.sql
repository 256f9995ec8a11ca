-- name: list_lineage
-- Read a checkpoint's line of ancestors, itself first, back to a place in the order of commits: parents come before.
-- differs: its planner may read the whole thread for each step back, unless a step is a query by itself.
with recursive line (checkpoint_id, parent_id, source, depth) as (
  select checkpoint_id, parent_id, source, 0
  from counterfoil_checkpoint
  where tenant = :tenant
    and thread_id = :thread_id
    and checkpoint_ns = :checkpoint_ns
    and checkpoint_id = :checkpoint_id
  union all
  select older.checkpoint_id, older.parent_id, older.source, line.depth + 1
  from line
  cross join lateral (
    select checkpoint_id, parent_id, source
    from counterfoil_checkpoint
    where tenant = :tenant
      and thread_id = :thread_id
      and checkpoint_ns = :checkpoint_ns
      and checkpoint_id = line.parent_id
      and seq >= :oldest
    limit 1
  ) older
)
select checkpoint_id, parent_id, source
from line
order by depth;
