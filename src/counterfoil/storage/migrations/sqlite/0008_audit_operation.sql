-- An entry names the operation that its subject is about, and none can be replaced: a trigger of its own, since SQLite
-- removes the row that an insert replaces without telling the trigger before a delete.

alter table counterfoil_audit add column operation_id text;

create index counterfoil_audit_operation on counterfoil_audit (tenant, operation_id, seq)
  where operation_id is not null;

create trigger counterfoil_audit_replace before insert on counterfoil_audit
  when exists (select 1 from counterfoil_audit where seq = new.seq) begin
  select raise(abort, 'an entry of the audit trail is neither changed nor removed');
end;
