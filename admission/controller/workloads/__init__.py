"""Workloads: rules for what is observed, what is due for their objects, requests, pods, groups, children, copies."""
