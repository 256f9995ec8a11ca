-- Who may do what, and who did what: tenants with a status, tokens by the digest of their secret, and an audit trail
-- to which entries are added and in which none changes.

create table counterfoil_tenant (
  tenant text not null primary key check (tenant <> ''),
  name text not null,
  status text not null check (status = 'active' or status = 'suspended'),
  changed_by text not null,
  reason text not null,
  created_at integer not null,
  updated_at integer not null
) strict, without rowid;

create table counterfoil_token (
  seq integer primary key,
  token_id text not null unique check (token_id <> ''),
  tenant text not null,
  principal text not null check (principal <> ''),
  shown text not null,
  role text not null check (role = 'viewer' or role = 'reviewer' or role = 'operator' or role = 'admin'),
  scopes text,
  secret_digest blob not null check (length(secret_digest) = 32),
  created_by text not null,
  created_at integer not null,
  expires_at integer,
  replaced_by text,
  revoked_by text,
  revoked_at integer,
  check ((revoked_by is null) = (revoked_at is null))
) strict;

create index counterfoil_token_tenant on counterfoil_token (tenant, seq);

create table counterfoil_audit (
  seq integer primary key,
  tenant text not null,
  at integer not null,
  who text not null check (who <> ''),
  shown text not null,
  role text,
  token_id text,
  act text not null,
  kind text not null,
  subject text not null,
  state_before text,
  state_after text,
  reason text not null,
  request_id text
) strict;

create index counterfoil_audit_tenant on counterfoil_audit (tenant, seq);
create index counterfoil_audit_who on counterfoil_audit (tenant, who, seq);
create index counterfoil_audit_subject on counterfoil_audit (tenant, subject, seq);

create trigger counterfoil_audit_update before update on counterfoil_audit begin
  select raise(abort, 'an entry of the audit trail is neither changed nor removed');
end;

create trigger counterfoil_audit_delete before delete on counterfoil_audit begin
  select raise(abort, 'an entry of the audit trail is neither changed nor removed');
end;
