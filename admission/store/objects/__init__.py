"""Queue objects in the database: versions, references, revisions, and log lines about changes."""
