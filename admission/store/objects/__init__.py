"""Queue objects in the database: writes with versions, references, revisions, and log lines about changes."""
