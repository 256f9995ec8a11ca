-- Who may do what, and who did what: tenants with a status, tokens by the digest of their secret, and an audit trail
-- to which entries are added and in which none changes.

create table counterfoil_tenant (
  tenant text collate "C" primary key check (tenant <> ''),
  name text collate "C" not null,
  status text collate "C" not null check (status in ('active', 'suspended')),
  changed_by text collate "C" not null,
  reason text collate "C" not null,
  created_at bigint not null,
  updated_at bigint not null
);

create table counterfoil_token (
  seq bigint generated always as identity,
  token_id text collate "C" not null check (token_id <> ''),
  tenant text collate "C" not null,
  principal text collate "C" not null check (principal <> ''),
  shown text collate "C" not null,
  role text collate "C" not null check (role in ('viewer', 'reviewer', 'operator', 'admin')),
  scopes text collate "C",
  secret_digest bytea not null check (length(secret_digest) = 32),
  created_by text collate "C" not null,
  created_at bigint not null,
  expires_at bigint,
  replaced_by text collate "C",
  revoked_by text collate "C",
  revoked_at bigint,
  primary key (tenant, seq),
  unique (token_id),
  check ((revoked_by is null) = (revoked_at is null))
);

create table counterfoil_audit (
  seq bigint generated always as identity,
  tenant text collate "C" not null,
  at bigint not null,
  who text collate "C" not null check (who <> ''),
  shown text collate "C" not null,
  role text collate "C",
  token_id text collate "C",
  act text collate "C" not null,
  kind text collate "C" not null,
  subject text collate "C" not null,
  state_before text collate "C",
  state_after text collate "C",
  reason text collate "C" not null,
  request_id text collate "C",
  primary key (tenant, seq)
);

create index counterfoil_audit_who on counterfoil_audit (tenant, who, seq);
create index counterfoil_audit_subject on counterfoil_audit (tenant, subject, seq);

create or replace function counterfoil_audit_refuse() returns trigger language plpgsql as $$
begin
  raise exception 'an entry of the audit trail is neither changed nor removed'
    using errcode = 'integrity_constraint_violation';
end
$$;

create trigger counterfoil_audit_kept before update or delete on counterfoil_audit
  for each statement execute function counterfoil_audit_refuse();
