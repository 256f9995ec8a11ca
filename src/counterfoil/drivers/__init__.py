"""The only rooms that touch a database connection."""
