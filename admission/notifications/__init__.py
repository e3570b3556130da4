"""Notifications: what Subscriptions ask for, taken from what is committed, and sent as signed HTTP requests."""
