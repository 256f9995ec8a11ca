-- Approvals: whether an operation may be sent, asked of a person, and bound to the very bytes that will be sent. What a
-- claim looks at stands in the operation's row.

alter table counterfoil_operation
  add column decide_by bigint,
  add column approved_until bigint;

create index counterfoil_operation_undecided on counterfoil_operation (decide_by)
  where state = 'awaiting_approval';
create index counterfoil_operation_permitted on counterfoil_operation (approved_until)
  where state = 'pending' and approved_until is not null;

create table counterfoil_approval (
  seq bigint generated always as identity,
  tenant text collate "C" not null check (tenant <> ''),
  operation_id text collate "C" not null,
  root_id text collate "C" not null,
  number bigint not null,
  state text collate "C" not null check (state in ('pending', 'approved', 'rejected', 'edited', 'expired', 'cancelled')),
  effect text collate "C" not null,
  effect_version bigint not null,
  content_digest bytea not null check (length(content_digest) = 32),
  asker text collate "C" not null,
  requested_by text collate "C",
  requested_at bigint not null,
  decide_by bigint not null,
  valid_for bigint not null,
  needs_another bigint not null,
  edited_by text collate "C",
  follows text collate "C",
  followed_by text collate "C",
  decided_by text collate "C",
  reason text collate "C",
  decided_at bigint,
  valid_until bigint,
  spent_at bigint,
  primary key (tenant, seq),
  unique (tenant, operation_id, number),
  check ((state = 'pending') = (decided_at is null)),
  check ((state = 'edited') = (followed_by is not null))
);

create unique index counterfoil_approval_pending on counterfoil_approval (tenant, operation_id)
  where state = 'pending';
create index counterfoil_approval_root on counterfoil_approval (tenant, root_id, seq);
create index counterfoil_approval_state on counterfoil_approval (tenant, state, seq);
