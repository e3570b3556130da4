"""Errors of requests that do not depend on the kind of object, and of server certificates.

SluiceError
    InvalidSelector         a label or field selector is malformed, or names a field that is not selectable
    PatchFailed             a JSON patch cannot be applied to the object
    NotAcceptable           the client accepts none of the supported representations
    UnusableCertificate     a certificate or its key cannot be used
"""

from __future__ import annotations

from admission.model.errors import SluiceError


class InvalidSelector(SluiceError):
    """A label or field selector is malformed, or names a field that is not selectable."""


class PatchFailed(SluiceError):
    """An operation of a JSON patch fails: the path is missing, a test fails, or the operation is malformed."""


class NotAcceptable(SluiceError):
    """The client accepts none of the supported representations."""


class UnusableCertificate(SluiceError):
    """A certificate or key is malformed, cannot be read, or they do not match."""
