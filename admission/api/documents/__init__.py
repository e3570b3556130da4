"""JSON documents of API objects: status and conditions, printer columns, representations, selectors."""
