"""Queue objects as the API shows them: one module for each kind, and the list of them (`all_kinds`)."""
