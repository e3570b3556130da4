"""Base classes of all errors that Sluice raises itself.

SluiceError
    InvalidObject           a manifest or request is invalid; names the fields
        InvalidQuantity
    Misconfigured           a workload can never start with its pod templates
    StoreError              the database (admission.store.errors has the subclasses)
    ClusterError            the Kubernetes API (admission.cluster.errors has the subclasses)

A message is one sentence that says what is wrong, where, and what to do. It is written for users, and `sluice` prints
it unchanged; a traceback is always a bug of Sluice.
"""

from __future__ import annotations

from admission.model.text import clean


class SluiceError(Exception):
    """Base of all errors that Sluice raises on purpose."""


class InvalidObject(SluiceError):
    """A manifest or request is invalid. `causes`: (field path, message) of each fault."""

    def __init__(self, causes: list[tuple[str, str]], *, subject: str = "") -> None:
        self.causes = causes
        self.subject = subject
        text = "; ".join(f"{field}: {message}" if field else message for field, message in causes)
        super().__init__(f"{subject}: {text}" if subject else text)


class InvalidQuantity(InvalidObject):
    """A text is no Kubernetes quantity, or a quantity out of range."""


class Misconfigured(SluiceError):
    """A workload can never start: the API server would refuse its pods, or Sluice cannot handle it.

    The message may quote text of users: it is cleaned and bounded (see `admission.model.text`).
    """

    def __init__(self, message: str) -> None:
        super().__init__(clean(message))


class StoreError(SluiceError):
    """An operation of the database failed."""


class ClusterError(SluiceError):
    """The Kubernetes API could not be reached, or refused a request."""
