"""The ledger of admissions: writes, usage computed from its rows, roll-ups, reports, quota violations."""
