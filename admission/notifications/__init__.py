"""Notifications for Subscriptions: derived from committed changes, delivered as signed HTTP requests."""
