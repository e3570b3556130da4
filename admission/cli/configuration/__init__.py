"""Settings of `sluice serve`: flags, environment variables and the configuration file."""
