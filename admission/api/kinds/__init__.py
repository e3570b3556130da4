"""API descriptors of queue objects, one module for each kind, and the registry of them (`all_kinds`)."""
