"""Topology-aware placement: trees of domains as state, and the search for domains of a workload's pods."""
