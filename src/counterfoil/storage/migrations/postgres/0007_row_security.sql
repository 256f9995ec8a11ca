-- A second wall between tenants, for roles that do not own the tables: without `counterfoil.tenant` they see no row.
-- Its value is `=` and the tenant's id, so that no id reads as another word; `*` is everybody's. One that was set and is
-- no longer reads as the empty string, which is nobody's, not even that of rows whose tenant is empty.
-- A migration that makes a table with a tenant makes its policy, too.

alter table counterfoil_approval enable row level security;
create policy counterfoil_approval_tenant on counterfoil_approval
  using (current_setting('counterfoil.tenant', true) = '=' || tenant
    or current_setting('counterfoil.tenant', true) = '*');

alter table counterfoil_attempt enable row level security;
create policy counterfoil_attempt_tenant on counterfoil_attempt
  using (current_setting('counterfoil.tenant', true) = '=' || tenant
    or current_setting('counterfoil.tenant', true) = '*');

alter table counterfoil_audit enable row level security;
create policy counterfoil_audit_tenant on counterfoil_audit
  using (current_setting('counterfoil.tenant', true) = '=' || tenant
    or current_setting('counterfoil.tenant', true) = '*');

alter table counterfoil_case enable row level security;
create policy counterfoil_case_tenant on counterfoil_case
  using (current_setting('counterfoil.tenant', true) = '=' || tenant
    or current_setting('counterfoil.tenant', true) = '*');

alter table counterfoil_channel enable row level security;
create policy counterfoil_channel_tenant on counterfoil_channel
  using (current_setting('counterfoil.tenant', true) = '=' || tenant
    or current_setting('counterfoil.tenant', true) = '*');

alter table counterfoil_checkpoint enable row level security;
create policy counterfoil_checkpoint_tenant on counterfoil_checkpoint
  using (current_setting('counterfoil.tenant', true) = '=' || tenant
    or current_setting('counterfoil.tenant', true) = '*');

alter table counterfoil_event enable row level security;
create policy counterfoil_event_tenant on counterfoil_event
  using (current_setting('counterfoil.tenant', true) = '=' || tenant
    or current_setting('counterfoil.tenant', true) = '*');

alter table counterfoil_evidence enable row level security;
create policy counterfoil_evidence_tenant on counterfoil_evidence
  using (current_setting('counterfoil.tenant', true) = '=' || tenant
    or current_setting('counterfoil.tenant', true) = '*');

alter table counterfoil_grant enable row level security;
create policy counterfoil_grant_tenant on counterfoil_grant
  using (current_setting('counterfoil.tenant', true) = '=' || tenant
    or current_setting('counterfoil.tenant', true) = '*');

alter table counterfoil_mint enable row level security;
create policy counterfoil_mint_tenant on counterfoil_mint
  using (current_setting('counterfoil.tenant', true) = '=' || tenant
    or current_setting('counterfoil.tenant', true) = '*');

alter table counterfoil_operation enable row level security;
create policy counterfoil_operation_tenant on counterfoil_operation
  using (current_setting('counterfoil.tenant', true) = '=' || tenant
    or current_setting('counterfoil.tenant', true) = '*');

alter table counterfoil_pause enable row level security;
create policy counterfoil_pause_tenant on counterfoil_pause
  using (current_setting('counterfoil.tenant', true) = '=' || nullif(tenant, '')
    or current_setting('counterfoil.tenant', true) = '*');
-- A pause of everybody's intents has no tenant: each tenant sees it, and none lifts it.
create policy counterfoil_pause_of_all on counterfoil_pause
  for select
  using (tenant = '' and current_setting('counterfoil.tenant', true) <> '');

alter table counterfoil_tenant enable row level security;
create policy counterfoil_tenant_tenant on counterfoil_tenant
  using (current_setting('counterfoil.tenant', true) = '=' || tenant
    or current_setting('counterfoil.tenant', true) = '*');

alter table counterfoil_thread enable row level security;
create policy counterfoil_thread_tenant on counterfoil_thread
  using (current_setting('counterfoil.tenant', true) = '=' || tenant
    or current_setting('counterfoil.tenant', true) = '*');

alter table counterfoil_token enable row level security;
create policy counterfoil_token_tenant on counterfoil_token
  using (current_setting('counterfoil.tenant', true) = '=' || tenant
    or current_setting('counterfoil.tenant', true) = '*');

alter table counterfoil_wait enable row level security;
create policy counterfoil_wait_tenant on counterfoil_wait
  using (current_setting('counterfoil.tenant', true) = '=' || tenant
    or current_setting('counterfoil.tenant', true) = '*');

alter table counterfoil_workflow enable row level security;
create policy counterfoil_workflow_tenant on counterfoil_workflow
  using (current_setting('counterfoil.tenant', true) = '=' || tenant
    or current_setting('counterfoil.tenant', true) = '*');

alter table counterfoil_write enable row level security;
create policy counterfoil_write_tenant on counterfoil_write
  using (current_setting('counterfoil.tenant', true) = '=' || tenant
    or current_setting('counterfoil.tenant', true) = '*');
