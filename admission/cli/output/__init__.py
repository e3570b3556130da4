"""Output of commands: tables, documents, JSONPath, sorting, progress."""
