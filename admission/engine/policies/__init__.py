"""Admission policies: rules beside quota that order pending workloads or refuse their admission, one per module."""
