"""Watch requests: change sources, one change stream for each resource, shared watches, streamed responses."""
