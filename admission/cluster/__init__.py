"""Kubernetes client: requests on raw JSON, informers, leader election, ordered writes, event recorder."""
