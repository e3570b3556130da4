"""`sluice serve`: settings, startup, leadership, and the services that it runs."""
