-- fragment: token
-- A token as lists show it: never the digest of its secret.
seq, token_id, tenant, principal, shown, role, scopes, created_by, created_at, expires_at, replaced_by, revoked_by,
  revoked_at, {now} as now

-- name: insert_token
-- Record a token by the digest of its secret.
insert into counterfoil_token (token_id, tenant, principal, shown, role, scopes, secret_digest, created_by, created_at,
  expires_at)
values (:token_id, :tenant, :principal, :shown, :role, :scopes, :secret_digest, :created_by, {now},
  {now} + cast(:lifetime as bigint))
returning {token};

-- name: look_at_token
-- Read what decides whether a token is honoured, and for whom it stands.
select token.secret_digest, token.expires_at, token.revoked_at, token.tenant, token.shown, token.role, token.scopes,
  tenant.status as tenant_status, {now} as now
from counterfoil_token token
left join counterfoil_tenant tenant on tenant.tenant = token.tenant
where token.token_id = :token_id;

-- name: get_token
-- Read one token.
select {token}
from counterfoil_token
where token_id = :token_id;

-- name: list_tokens
-- Page through a tenant's tokens, the oldest first.
select {token}
from counterfoil_token
where tenant = :tenant
  and seq > :after
order by seq
limit :limit;

-- name: list_token_tenants_any_tenant
-- Name the tenants that have tokens by jumping from one to the next in the index: for the operator of the database only.
with recursive named (tenant) as (
  select min(tenant) from counterfoil_token
  union all
  select (select min(t.tenant) from counterfoil_token t where t.tenant > named.tenant)
  from named
  where named.tenant is not null
)
select tenant
from named
where tenant is not null;

-- name: replace_token_if_live
-- Let a token end soon, since another one takes its place; one that ended is left alone.
update counterfoil_token
set expires_at = {least}(coalesce(expires_at, {now} + :overlap), {now} + :overlap),
  replaced_by = :replaced_by
where token_id = :token_id
  and replaced_by is null
  and revoked_at is null
  and (expires_at is null or expires_at > {now})
returning {token};

-- name: revoke_token_if_not
-- End a token at once, unless it is revoked.
update counterfoil_token
set revoked_at = {now},
  revoked_by = :revoked_by
where token_id = :token_id
  and revoked_at is null
returning {token};

-- name: insert_tenant
-- Record a tenant, unless one of this name is there.
insert into counterfoil_tenant (tenant, name, status, changed_by, reason, created_at, updated_at)
values (:tenant, :name, :status, :changed_by, :reason, {now}, {now})
on conflict (tenant) do nothing
returning *;

-- name: get_tenant
-- Read one tenant.
select *
from counterfoil_tenant
where tenant = :tenant;

-- name: lock_tenant
-- Read one tenant, and keep others from moving it until this transaction ends.
select *
from counterfoil_tenant
where tenant = :tenant
{locked};

-- name: list_tenants
-- Page through the tenants that were created, by name.
select *
from counterfoil_tenant
where tenant > :after_tenant
order by tenant
limit :limit;

-- name: move_tenant
-- Suspend a tenant, or let it go on; its row is locked.
update counterfoil_tenant
set status = :status,
  changed_by = :changed_by,
  reason = :reason,
  updated_at = {now}
where tenant = :tenant
  and status = :expected_status
returning *;

-- name: insert_pause
-- Keep a tenant's intents back, unless somebody does so by exactly this name.
insert into counterfoil_pause (tenant, effect, stream, paused_by, reason, at)
values (:tenant, :effect, :stream, :paused_by, :reason, {now})
on conflict (tenant, effect, stream) do nothing
returning *;

-- name: delete_pause_if_so
-- Let intents go again that were kept back by this person for this reason; another pause of this name stays.
delete from counterfoil_pause
where tenant = :tenant
  and effect = :effect
  and stream = :stream
  and paused_by = :paused_by
  and reason = :reason
returning *;
