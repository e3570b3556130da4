"""Objects as the API shows them: documents with status, printer columns, representations, selections."""
