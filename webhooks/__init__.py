"""Admission webhooks and admission policies that gate queued objects. They use neither quota nor the database."""
