"""The ledger of admissions: entries, usage computed from them, roll-ups, reports, quota violations."""
