"""The aggregation layer: APIs of other servers, served as if they were the API server's own."""
