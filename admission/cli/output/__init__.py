"""Output of commands: tables, documents, JSONPath, sorting, logs of pods, progress."""
