"""The web dashboard: static files under `/ui/`, which load their data from the REST API."""

from admission.dashboard.serving import PUBLIC_ROUTES, add_dashboard

__all__ = ["PUBLIC_ROUTES", "add_dashboard"]
