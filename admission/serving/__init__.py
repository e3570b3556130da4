"""Serving HTTPS: listeners, bounded connections, TLS, the event loop, logging."""
