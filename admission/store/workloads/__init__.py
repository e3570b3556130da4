"""Workloads in the database: commits, loading, queries, counts, admins' orders, admission checks."""
