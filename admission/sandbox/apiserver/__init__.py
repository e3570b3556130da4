"""The API server of the sandbox: storage, registry, verbs, representation, schemas, watches."""
