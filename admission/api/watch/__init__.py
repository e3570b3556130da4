"""Watch requests: change sources, one shared broadcast for each resource, the stream of each request."""
