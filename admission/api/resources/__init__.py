"""Handlers of the API's resources (verbs), subresources and reports."""
