"""Storage in SQLite or PostgreSQL: queue objects, workloads, the ledger of admissions."""
