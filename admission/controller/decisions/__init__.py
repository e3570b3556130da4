"""Decision cycles: scheduling, commit batching, and the search for workloads on which the engine fails."""
