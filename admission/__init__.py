"""Sluice: a queue manager for Kubernetes batch and AI jobs, with its quotas in a SQL database."""
