"""What can go wrong in the webhooks."""

from __future__ import annotations

from admission.model.errors import SluiceError


class MalformedReview(SluiceError):
    """A request body that is no AdmissionReview of an object that can be reviewed here."""


class CertificateError(SluiceError):
    """The webhook's certificates could not be read or written."""


class PoliciesNotOffered(SluiceError):
    """The API server does not have the admission policies that Sluice was told to gate with."""
