"""Decision cycles: when one is due, what is decided, and the workload that a failing engine cannot decide about."""
