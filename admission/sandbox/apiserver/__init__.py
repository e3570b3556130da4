"""Core of the simulated API server: storage, registry, strategies, schemas, patches, selectors and request bodies."""
