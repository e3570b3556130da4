"""Discovery documents and OpenAPI v3: schemas of objects, reports and subresources."""
