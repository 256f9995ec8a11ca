-- name: lock_migrations
-- Let one replica at a time change the schema, until its transaction ends.
-- differs: writers run beside each other, so the lock is one of its own; its number is "counterf" in ASCII.
with taken as materialized (select pg_advisory_xact_lock(7165074649429406310))
select count(*) as locked
from taken;

-- name: has_migration_table
-- Say whether this database has ever been ours.
-- differs: each dialect keeps its own catalog.
select count(*) as n
from pg_catalog.pg_class
where oid = to_regclass('counterfoil_migration');

-- name: list_schema
-- Read the definitions of our tables, and of whatever indexes and triggers are on them, as the database holds them.
-- differs: the catalog keeps no text, so each definition is written from it, the same for every release of the server.
with ours as (
  select oid, relname
  from pg_catalog.pg_class
  where relnamespace = (select relnamespace from pg_catalog.pg_class where oid = to_regclass('counterfoil_migration'))
    and relkind in ('r', 'p')
    and relname like 'counterfoil~_%' escape '~'
),
parts as (
  select attrelid as oid, 1 as kind, attnum as place, cast('' as text) as name,
    quote_ident(attname) || ' ' || format_type(atttypid, atttypmod)
      || case when attcollation <> 0 then ' collate ' || quote_ident(collname) else '' end
      || case when attidentity <> '' then ' generated always as identity' else '' end
      || case when attnotnull then ' not null' else '' end
      || coalesce(' default ' || pg_get_expr(adbin, adrelid), '') as part
  from pg_catalog.pg_attribute
  join ours on ours.oid = attrelid
  left join pg_catalog.pg_collation on pg_collation.oid = attcollation
  left join pg_catalog.pg_attrdef on adrelid = attrelid and adnum = attnum
  where attnum > 0
    and not attisdropped
  union all
  select conrelid, 2, 0, cast(conname as text), pg_get_constraintdef(pg_constraint.oid)
  from pg_catalog.pg_constraint
  join ours on ours.oid = conrelid
  where contype in ('c', 'p', 'u', 'x', 'f')
)
select cast(relname as text) as name, cast(relname as text) as tbl_name,
  'create table ' || relname || ' (' || string_agg(part, ', ' order by kind, place, name) || ')' as sql
from ours
join parts on parts.oid = ours.oid
group by relname
union all
select cast(made.relname as text), cast(ours.relname as text),
  regexp_replace(pg_get_indexdef(indexrelid), ' ON (ONLY )?\S+ USING ', ' ON ' || ours.relname || ' USING ')
from pg_catalog.pg_index
join ours on ours.oid = indrelid
join pg_catalog.pg_class made on made.oid = indexrelid
where not exists (select 1 from pg_catalog.pg_constraint where conindid = indexrelid and contype in ('p', 'u', 'x'))
union all
select cast(tgname as text), cast(ours.relname as text), pg_get_triggerdef(pg_trigger.oid)
from pg_catalog.pg_trigger
join ours on ours.oid = tgrelid
where not tgisinternal
union all
select cast(rulename as text), cast(ours.relname as text), pg_get_ruledef(pg_rewrite.oid)
from pg_catalog.pg_rewrite
join ours on ours.oid = ev_class
order by name;
