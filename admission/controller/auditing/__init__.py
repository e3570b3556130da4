"""Consistency audits: database, cluster and the leader's memory compared."""
