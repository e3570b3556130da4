"""Infrastructure of server processes: listeners, connection limits, TLS, event loop, logging, metrics, tracing."""
