"""The database: queue objects, workloads, the ledger of admissions."""
