"""Database access: connections, SQL dialects, tables, migrations, driver errors."""
