-- name: insert_audit_entry
-- Note what somebody did, in the transaction that does it.
insert into counterfoil_audit (tenant, at, who, shown, role, token_id, act, kind, subject, state_before, state_after,
  reason, request_id, operation_id)
values (:tenant, {now}, :who, :shown, :role, :token_id, :act, :kind, :subject, :state_before, :state_after, :reason,
  :request_id, :operation_id)
returning seq;

-- name: list_audit
-- Page through what was done within a tenant, the oldest first.
select *
from counterfoil_audit
where tenant = :tenant
  and seq > :after
order by seq
limit :limit;

-- name: list_audit_by
-- Page through what one principal did within a tenant.
select *
from counterfoil_audit
where tenant = :tenant
  and who = :who
  and seq > :after
order by seq
limit :limit;

-- name: list_audit_about
-- Page through what was done to one thing of a tenant, or to what was asked about it; `by_whom` may narrow it.
select *
from (
  select *
  from counterfoil_audit
  where tenant = :tenant
    and subject = :subject
    and (cast(:by_whom as text) is null or who = :by_whom)
    and seq > :after
  order by seq
  limit :limit
) itself
union all
select *
from (
  select *
  from counterfoil_audit
  where tenant = :tenant
    and operation_id = :subject
    and (cast(:by_whom as text) is null or who = :by_whom)
    and seq > :after
  order by seq
  limit :limit
) asked
order by seq
limit :limit;

-- name: list_audit_tenants_any_tenant
-- Name the tenants within which something was done: for the operator of the database only.
with recursive named (tenant) as (
  select min(tenant) from counterfoil_audit
  union all
  select (select min(a.tenant) from counterfoil_audit a where a.tenant > named.tenant)
  from named
  where named.tenant is not null
)
select tenant
from named
where tenant is not null;
