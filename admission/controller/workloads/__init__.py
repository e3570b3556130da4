"""The lifecycle of workloads: state transitions from observed objects, and the resulting API server requests."""
