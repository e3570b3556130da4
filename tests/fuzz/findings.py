"""Findings, with which a game may end."""

from __future__ import annotations


class Finding(Exception):
    """A violated promise: a constant title in a few words, and the details of this case."""

    def __init__(self, title: str, details: str = "") -> None:
        super().__init__(f"{title}: {details}" if details else title)
        self.title = title
        self.details = details
