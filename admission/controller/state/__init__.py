"""What the leader keeps in memory about each workload, and what the next commit writes of it."""
