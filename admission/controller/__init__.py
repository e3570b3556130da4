"""Joins cluster, engine and store: the loop that every Job passes through."""

from admission.controller.controller import Controller

__all__ = ["Controller"]
