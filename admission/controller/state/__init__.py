"""In-memory state of the leader: workloads, faults, settings, the batch of the next commit, and reports of commits."""
