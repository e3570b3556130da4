"""Admission policies: rules that order waiting workloads or keep them waiting, each a module of its own."""
