"""The verbs of the API's resources, their subresources, and the reports."""
