"""The tree of all errors that Sluice raises itself.

SluiceError
    InvalidObject           what a user wrote cannot be; names the field
        InvalidQuantity
    Misconfigured           a workload that could never start as its pods are written
    StoreError              the database (admission.store.errors has its branches)
    ClusterError            the Kubernetes API (admission.cluster.errors has its branches)

A message is one sentence that says what is wrong, where, and what to do. It is written for the person
who will read it, and `sluice` prints it as it is; a traceback is always a defect of ours.
"""

from __future__ import annotations

from admission.model.text import clean


class SluiceError(Exception):
    """The root: whatever Sluice raises on purpose."""


class InvalidObject(SluiceError):
    """A manifest or request that cannot be accepted. `causes` holds (field path, message), one for each fault."""

    def __init__(self, causes: list[tuple[str, str]], *, subject: str = "") -> None:
        self.causes = causes
        self.subject = subject
        text = "; ".join(f"{field}: {message}" if field else message for field, message in causes)
        super().__init__(f"{subject}: {text}" if subject else text)


class InvalidQuantity(InvalidObject):
    """A text that is no Kubernetes quantity, or one outside of what can be counted."""


class Misconfigured(SluiceError):
    """A workload that could never start: the API server would refuse its pods, or Sluice cannot handle it.

    The message may quote what its user wrote: it is cleaned and bounded (see `admission.model.text`).
    """

    def __init__(self, message: str) -> None:
        super().__init__(clean(message))


class StoreError(SluiceError):
    """The database could not do what was asked."""


class ClusterError(SluiceError):
    """The Kubernetes API could not be reached, or refused."""
