-- name: has_migration_table
-- Say whether this database has ever been ours.
select count(*) as n
from sqlite_master
where type = 'table'
  and name = 'counterfoil_migration';

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
-- Read the definitions of our tables and indexes as the database holds them.
select name, sql
from sqlite_master
where name like 'counterfoil~_%' escape '~'
  and sql is not null
order by name;
