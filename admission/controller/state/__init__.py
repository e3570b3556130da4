"""In-memory state of the leader: inbox, triggers, workloads and their changes, faults, context, reports of commits."""
