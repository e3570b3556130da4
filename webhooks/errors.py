"""Errors of the webhooks."""

from __future__ import annotations

from admission.model.errors import SluiceError


class MalformedReview(SluiceError):
    """The body of a request is not an AdmissionReview of a Kubernetes object."""


class CertificateError(SluiceError):
    """The webhook's certificates cannot be read or written."""


class PoliciesNotOffered(SluiceError):
    """Sluice is configured to gate by admission policies, and the API server does not serve them."""
