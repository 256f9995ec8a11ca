-- name: insert_audit_entry
-- Note what somebody did, in the transaction that does it.
insert into counterfoil_audit (tenant, at, who, shown, role, token_id, act, kind, subject, state_before, state_after,
  reason, request_id)
values (:tenant, {now}, :who, :shown, :role, :token_id, :act, :kind, :subject, :state_before, :state_after, :reason,
  :request_id)
returning seq;
