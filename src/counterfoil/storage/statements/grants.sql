-- name: put_grant
-- Permit an operation with exactly these arguments; one that was permitted before is renewed.
insert into counterfoil_grant (tenant, operation_id, effect, identity_digest, granted_by, granted_at, expires_at)
values (:tenant, :operation_id, :effect, :identity_digest, :granted_by, {now}, {now} + :valid_for)
on conflict (tenant, operation_id, effect, identity_digest) do update
set granted_by = excluded.granted_by,
  granted_at = excluded.granted_at,
  expires_at = excluded.expires_at,
  revoked_by = null,
  revoked_at = null
returning *, {now} as now;

-- name: find_grant
-- Find out whether an operation with exactly these arguments is permitted now, and keep the grant from being taken back
-- until this transaction ends; others may do so beside.
select seq
from counterfoil_grant
where tenant = :tenant
  and operation_id = :operation_id
  and effect = :effect
  and identity_digest = :identity_digest
  and revoked_at is null
  and (expires_at is null or expires_at > {now})
{shared};

-- name: list_grants
-- Page through a tenant's grants, the newest first.
select *, {now} as now
from counterfoil_grant
where tenant = :tenant
  and seq < :before
order by seq desc
limit :limit;

-- name: revoke_grant_if_live
-- Take a grant back, unless somebody did before.
update counterfoil_grant
set revoked_by = :revoked_by,
  revoked_at = {now}
where tenant = :tenant
  and seq = :seq
  and revoked_at is null
returning *, {now} as now;

-- name: lock_grant
-- Read one grant, and wait for whoever begins an operation under it.
select *, {now} as now
from counterfoil_grant
where tenant = :tenant
  and seq = :seq
{locked};
