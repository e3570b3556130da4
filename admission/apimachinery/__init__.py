"""Kubernetes' conventions that hold for every kind, as pure functions: selectors, patches, field ownership, tables."""
