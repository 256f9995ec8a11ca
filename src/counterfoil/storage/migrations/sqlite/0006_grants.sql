-- Grants: what a trusted entry point has permitted beforehand, for a strict program, in which nothing else is sent.

create table counterfoil_grant (
  seq integer primary key,
  tenant text not null check (tenant <> ''),
  operation_id text not null check (operation_id <> ''),
  effect text not null,
  identity_digest blob not null check (length(identity_digest) = 32),
  granted_by text not null,
  granted_at integer not null,
  expires_at integer,
  revoked_by text,
  revoked_at integer,
  unique (tenant, operation_id, effect, identity_digest),
  check ((revoked_by is null) = (revoked_at is null))
) strict;

create index counterfoil_grant_newest on counterfoil_grant (tenant, seq);
