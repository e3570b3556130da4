"""Workloads from observation to request: observed changes, admitted workloads, requests to the API server."""
