-- name: lock_migrations
-- Let one replica at a time change the schema, until its transaction ends: here every transaction that writes does so.
select 1 as locked;

-- name: find_ours
-- Say whether this database has ever been ours; a file has no roles, so that whoever opened it may do everything.
select count(*) as n, 1 as readable, null as role, 'main' as made_in, 1 as may_make, null as hidden_in
from sqlite_master
where type = 'table'
  and name = 'counterfoil_migration';

-- name: list_rights
-- Read what this role may do with each of our tables, whose they are, and whether row security holds it.
select name, 1 as may_select, 1 as may_insert, 1 as may_update, 1 as may_delete, 0 as is_held, 0 as for_one_tenant,
  null as owner, 1 as is_owner, null as role
from sqlite_master
where type = 'table'
  and name like 'counterfoil~_%' escape '~'
order by name;

-- name: list_migrations
-- Read which migrations were applied.
select number, name, digest, applied_at
from counterfoil_migration
order by number;

-- name: insert_migration
-- Record a migration; comes first in its transaction, so that two replicas collide here.
insert into counterfoil_migration (number, name, digest, applied_at)
values (:number, :name, :digest, {now})
returning number;

-- name: list_schema
-- Read the definitions of our tables, and of whatever indexes and triggers are on them, as the database holds them.
select name, tbl_name, sql
from sqlite_master
where tbl_name like 'counterfoil~_%' escape '~'
  and sql is not null
order by name;
