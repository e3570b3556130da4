"""The Kubernetes side: requests on raw JSON, watches that lose nothing, ordered writes, events."""
