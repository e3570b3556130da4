"""Example configuration file with all settings and their documentation, generated from the settings models.

`sluice config example` prints it, and the site's page of all settings shows it (`docs/hooks.py`).
"""

from __future__ import annotations

import inspect
import json
import textwrap
from typing import TYPE_CHECKING, Any, Final, get_args

import yaml
from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from admission.cli.configuration.settings import Settings, flag_of, variable_of
from admission.cli.configuration.settings_options import is_flag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

_WIDTH: Final = 110
"""Characters of a line of documentation, without `## `."""

_EXAMPLES: Final[dict[str, Any]] = {
    "admission_fair_sharing": {
        "usageHalfLifeTime": "168h",
        "usageSamplingInterval": "5m",
        "resourceWeights": {"cpu": 1, "nvidia.com/gpu": 10},
    },
    "integrations": {"frameworks": ["batch/job", "jobset.x-k8s.io/jobset"]},
    "fair_sharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]},
    "managed_jobs_namespace_selector": {"matchLabels": {"team": "research"}},
    "notifications": {
        "receivers": [
            {
                "name": "pager",
                "url": "https://hooks.example.com/sluice",
                "secretFile": "/etc/sluice/notifications/pager",
            }
        ],
        "allowedNetworks": ["10.96.0.0/12"],
    },
    "oidc": {
        "issuerUrl": "https://accounts.example.com",
        "clientId": "sluice",
        "clientSecretFile": "/etc/sluice/sign-in/client-secret",
        "url": "https://sluice.example.com",
        "usernameClaim": "email",
        "groupsClaim": "groups",
        "groupsPrefix": "oidc:",
    },
    "request_header": {
        "clientCaFile": "/etc/sluice/sign-in/proxy-ca.crt",
        "allowedNames": ["sign-in-proxy"],
    },
    "resources": {
        "excludeResourcePrefixes": ["example.com/"],
        "quotaCheckStrategy": "BlockUndeclared",
        "transformations": [
            {"input": "nvidia.com/mig-1g.5gb", "strategy": "Replace", "outputs": {"example.com/gpu-memory": "5Gi"}}
        ],
        "deviceClassMappings": [{"name": "example.com/gpu", "deviceClassNames": ["gpu.nvidia.com"]}],
        "unmappedDeviceClasses": "Block",
    },
    "retention": {"finished": "90d", "audit": "365d"},
    "topology": {"balancedPlacement": False, "respectNodeAffinityPreferred": False},
    "failure_recovery": {"forcefulTerminationGracePeriod": "1m"},
    "usage_metrics": {
        "prometheus": {"url": "http://prometheus.monitoring:9090"},
        "idleAfter": "2h",
    },
    "wait_for_pods_ready": {
        "timeout": "30m",
        "recoveryTimeout": "30m",
        "blockAdmission": False,
        "requeuingStrategy": {
            "timestamp": "Eviction",
            "backoffLimitCount": 5,
            "backoffBaseSeconds": 60,
            "backoffMaxSeconds": 3600,
        },
    },
}
"""Example values of settings that are objects, by field name of `Settings`."""


def example() -> str:
    """Return a configuration file with all settings commented out, each with its description and default or example.

    Lines that begin with `##` are documentation; a setting is enabled by removing the `# ` in front of its lines.
    """
    blocks = ["apiVersion: sluice.dev/v1\nkind: Configuration"]
    blocks += [_block(name, field) for name, field in Settings.model_fields.items() if name != "admin_token"]
    return "\n\n".join(blocks) + "\n"


def _block(name: str, field: FieldInfo) -> str:
    lines = _comment(field.description or "")
    lines.append(f"## [{flag_of(name)}, {variable_of(name)}]" if is_flag(name) else f"## [{variable_of(name)}]")
    model = _model(field.annotation)
    if model is not None:
        lines += [line for path, text in _documented(model) for line in _comment(f"{path}: {text}", indent="  ")]
    value = _EXAMPLES.get(name, field.default if field.default is None else _plain(field.default))
    if value is None:
        return "\n".join([*lines, f"# {to_camel(name)}:"])
    text = yaml.safe_dump({to_camel(name): value}, sort_keys=False, width=_WIDTH)
    return "\n".join([*lines, *(f"# {line}" for line in text.splitlines())])


def _comment(text: str, *, indent: str = "") -> list[str]:
    """Return `text` as lines of documentation; continuation lines of an indented one are indented further."""
    lines = textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=2 * indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return [f"## {line}" for line in lines]


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str))


def _documented(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield path and description of each documented field of a model, including fields of nested models."""
    for name, field in model.model_fields.items():
        path = f"{prefix}{field.alias or to_camel(name)}"
        if field.description:
            yield path, " ".join(field.description.split())
        inner = _model(field.annotation)
        if inner is not None:
            yield from _documented(inner, f"{path}.")


def _model(annotation: Any) -> type[BaseModel] | None:
    """Return the model in an annotation such as `Model | None` or `tuple[Model, ...]`; None if there is none."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model(part)) is not None), None)
