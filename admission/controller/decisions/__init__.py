"""Decisions and commits: the engine's cycles, quota from nodes and calendars, Budgets, reservations, drains, usage."""
