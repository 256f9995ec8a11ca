-- An entry names the operation that its subject is about.

alter table counterfoil_audit add column operation_id text collate "C";

create index counterfoil_audit_operation on counterfoil_audit (tenant, operation_id, seq)
  where operation_id is not null;
