-- Grants: what a trusted entry point has permitted beforehand, for a strict program, in which nothing else is sent.

create table counterfoil_grant (
  seq bigint generated always as identity,
  tenant text collate "C" not null check (tenant <> ''),
  operation_id text collate "C" not null check (operation_id <> ''),
  effect text collate "C" not null,
  identity_digest bytea not null check (length(identity_digest) = 32),
  granted_by text collate "C" not null,
  granted_at bigint not null,
  expires_at bigint,
  revoked_by text collate "C",
  revoked_at bigint,
  primary key (tenant, seq),
  unique (tenant, operation_id, effect, identity_digest),
  check ((revoked_by is null) = (revoked_at is null))
);

create index counterfoil_grant_newest on counterfoil_grant (tenant, seq);
