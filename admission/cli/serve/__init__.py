"""`sluice serve`: startup, leadership, and the services that the process runs."""
