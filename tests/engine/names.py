"""The engines, each on the databases on which it works."""

EMBEDDED_SQLITE, EMBEDDED_POSTGRES, PROCRASTINATE = "embedded-sqlite", "embedded-postgres", "procrastinate"
ENGINES = (EMBEDDED_SQLITE, EMBEDDED_POSTGRES, PROCRASTINATE)
