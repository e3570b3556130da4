"""What an API server rests on: storage, the registry with the life of objects, schemas, patches, selectors, bodies."""
