-- Approvals: whether an operation may be sent, asked of a person, and bound to the very bytes that will be sent. What a
-- claim looks at stands in the operation's row.

alter table counterfoil_operation add column decide_by integer;
alter table counterfoil_operation add column approved_until integer;

create index counterfoil_operation_undecided on counterfoil_operation (decide_by)
  where state = 'awaiting_approval';
create index counterfoil_operation_permitted on counterfoil_operation (approved_until)
  where state = 'pending' and approved_until is not null;

create table counterfoil_approval (
  seq integer primary key,
  tenant text not null check (tenant <> ''),
  operation_id text not null,
  root_id text not null,
  number integer not null,
  state text not null check (state = 'pending' or state = 'approved' or state = 'rejected' or state = 'edited'
    or state = 'expired' or state = 'cancelled'),
  effect text not null,
  effect_version integer not null,
  content_digest blob not null check (length(content_digest) = 32),
  asker text not null,
  requested_by text,
  requested_at integer not null,
  decide_by integer not null,
  valid_for integer not null,
  needs_another integer not null,
  edited_by text,
  follows text,
  followed_by text,
  decided_by text,
  reason text,
  decided_at integer,
  valid_until integer,
  spent_at integer,
  unique (tenant, operation_id, number),
  check ((state = 'pending') = (decided_at is null)),
  check ((state = 'edited') = (followed_by is not null))
) strict;

create unique index counterfoil_approval_pending on counterfoil_approval (tenant, operation_id)
  where state = 'pending';
create index counterfoil_approval_root on counterfoil_approval (tenant, root_id, seq);
create index counterfoil_approval_state on counterfoil_approval (tenant, state, seq);
