"""API descriptors of queue objects, and their registry (`all_kinds`)."""
