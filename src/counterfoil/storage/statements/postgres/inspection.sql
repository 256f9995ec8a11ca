-- name: compare_clocks
-- Read the database's time; the newest row's is left out.
-- differs: one server's clock stamps all rows here, and no index finds the latest of all tenants.
select {now} as now, cast(null as bigint) as newest;
