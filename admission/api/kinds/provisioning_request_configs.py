"""API descriptor of ProvisioningRequestConfigs."""

from __future__ import annotations

from typing import Final

from admission.api.kinds.columns import Column, at
from admission.api.kinds.descriptor import ObjectKind
from admission.model.queues import ProvisioningRequestConfig

PROVISIONING_REQUEST_CONFIG: Final = ObjectKind(
    ProvisioningRequestConfig,
    columns=(Column("Class", at("spec", "provisioningClassName"), "Mode of provisioning"),),
)
