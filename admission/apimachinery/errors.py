"""Errors of requests that are independent of the kind of object, and of server certificates.

SluiceError
    InvalidSelector         a label or field selector that cannot be understood, or a field that cannot be selected by
    PatchFailed             a JSON patch whose operations cannot be done on this object
    NotAcceptable           nothing that the client accepts can be given
    UnusableCertificate     the certificate that a server shall show is none
"""

from __future__ import annotations

from admission.model.errors import SluiceError


class InvalidSelector(SluiceError):
    """A selector that cannot be understood."""


class PatchFailed(SluiceError):
    """An operation of a JSON patch cannot be done: a missing path, a failed test, a malformed operation."""


class NotAcceptable(SluiceError):
    """The client accepts none of the supported representations."""


class UnusableCertificate(SluiceError):
    """A certificate and a key that are no such, cannot be read, or do not belong together."""
