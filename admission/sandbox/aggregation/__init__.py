"""Aggregation layer: APIs of extension API servers, served by the sandbox's API server (kube-aggregator)."""
