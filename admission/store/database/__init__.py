"""The database itself: connection, dialects, tables, migrations, driver errors."""
