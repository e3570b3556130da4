"""What the pods of an object need beside it: objects that their templates name, and that must exist where they run."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from admission.kinds import paths
from admission.kinds.common import NOTHING
from admission.model.names import is_dns_subdomain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from admission.kinds.base import Kind, Object
    from admission.model.queues import CopyAlong

MOST: Final = 256
"""Most objects that are looked for: those beyond are regarded as there."""
CONFIG_MAP: Final = "ConfigMap"
SECRET: Final = "Secret"  # noqa: S105  a kind
_BY_DEFAULT: Final = "default"
"""Name of the service account that each namespace has."""
_SOURCES: Final = (("configMapRef", CONFIG_MAP), ("secretRef", SECRET))
_KEYS: Final = (("configMapKeyRef", CONFIG_MAP), ("secretKeyRef", SECRET))
_OWN_SECRET: Final = ("secretRef", "nodePublishSecretRef")
"""Fields of volume sources, beside `secret`, that name a Secret of the namespace."""


NEVER_COPIED: Final = ("kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token")
"""Types of Secrets that are credentials of their own cluster."""


class Need(NamedTuple):
    """An object that pods need."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def needs_of(kind: Kind, obj: Object) -> tuple[Need, ...]:
    """Return what the pods of an object need, without what they can start without (`optional`).

    An AppWrapper may contain what its own pods need. Raises Misconfigured.
    """
    templates = (template.get("spec") or NOTHING for template in kind.templates(obj))
    found = dict.fromkeys(need for spec in templates for need in _of_pod(spec) if need.name)
    for component in paths.value(obj, ("spec", "components")) or ():
        inside = component.get("template") or NOTHING
        found.pop(Need(str(inside.get("kind")), str((inside.get("metadata") or NOTHING).get("name"))), None)
    return tuple(found)[:MOST]


def copied_along(needs: Iterable[Need], rule: CopyAlong) -> tuple[Need, ...]:
    """Return those of the needs that are copied along."""
    patterns = {CONFIG_MAP: rule.config_maps, SECRET: rule.secrets}
    return tuple(
        need
        for need in needs
        if is_dns_subdomain(need.name) and any(fnmatchcase(need.name, each) for each in patterns.get(need.kind, ()))
    )


def _of_pod(spec: Mapping[str, Any]) -> Iterator[Need]:
    account = spec.get("serviceAccountName") or spec.get("serviceAccount") or ""
    yield Need("ServiceAccount", "" if account == _BY_DEFAULT else account)
    yield Need("PriorityClass", spec.get("priorityClassName") or "")
    yield Need("RuntimeClass", spec.get("runtimeClassName") or "")
    yield Need("Service", spec.get("subdomain") or "")
    for reference in spec.get("imagePullSecrets") or ():
        yield Need(SECRET, reference.get("name") or "")
    for volume in spec.get("volumes") or ():
        yield from _of_volume(volume)
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        for source in container.get("envFrom") or ():
            yield from _named(source, _SOURCES)
        for variable in container.get("env") or ():
            yield from _named(variable.get("valueFrom") or NOTHING, _KEYS)
    for claim in spec.get("resourceClaims") or ():
        yield Need("ResourceClaim", claim.get("resourceClaimName") or "")
        yield Need("ResourceClaimTemplate", claim.get("resourceClaimTemplateName") or "")


def _of_volume(volume: Mapping[str, Any]) -> Iterator[Need]:
    yield from _named(volume, (("configMap", CONFIG_MAP), ("secret", SECRET)))
    yield Need("PersistentVolumeClaim", (volume.get("persistentVolumeClaim") or NOTHING).get("claimName") or "")
    for source in (volume.get("projected") or NOTHING).get("sources") or ():
        yield from _named(source, (("configMap", CONFIG_MAP), ("secret", SECRET)))
    for source in volume.values():
        if isinstance(source, dict):
            for field in _OWN_SECRET:
                yield Need(SECRET, (source.get(field) or NOTHING).get("name") or "")
    yield Need(SECRET, (volume.get("azureFile") or NOTHING).get("secretName") or "")


def _named(source: Mapping[str, Any], fields: tuple[tuple[str, str], ...]) -> Iterator[Need]:
    for field, kind in fields:
        reference = source.get(field) or NOTHING
        if not reference.get("optional"):
            yield Need(kind, reference.get("name") or reference.get("secretName") or "")
