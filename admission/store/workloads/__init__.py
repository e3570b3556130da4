"""Workloads in the database: commits, loading, queries, counts, orders, admission checks."""
