"""The settings as an example file, with the documentation of each; made from the models."""

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
    },
    "retention": {"finished": "90d", "audit": "365d"},
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
"""What settings that are objects could be."""


def example() -> str:
    """A file with all settings, what they mean and their defaults, or what they could be. As it is, it says nothing.

    Lines that begin with `##` explain; in the others, `# ` before a setting is to be taken away.
    """
    blocks = ["apiVersion: sluice.dev/v1\nkind: Configuration"]
    blocks += [_block(name, field) for name, field in Settings.model_fields.items() if name != "admin_token"]
    return "\n\n".join(blocks) + "\n"


def _block(name: str, field: FieldInfo) -> str:
    lines = _comment(field.description or "")
    lines.append(f"## [{flag_of(name)}, {variable_of(name)}]" if is_flag(name) else f"## [{variable_of(name)}]")
    model = _model(field.annotation)
    lines += [f"##   {path}: {text}" for path, text in _documented(model)] if model is not None else []
    value = _EXAMPLES.get(name, field.default if field.default is None else _plain(field.default))
    if value is None:
        return "\n".join([*lines, f"# {to_camel(name)}:"])
    text = yaml.safe_dump({to_camel(name): value}, sort_keys=False, width=_WIDTH)
    return "\n".join([*lines, *(f"# {line}" for line in text.splitlines())])


def _comment(text: str) -> list[str]:
    return [f"## {line}" for line in textwrap.wrap(text, _WIDTH, break_on_hyphens=False)]


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str))


def _documented(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str]]:
    """The fields of a model and of those in it, by path, with what they mean."""
    for name, field in model.model_fields.items():
        path = f"{prefix}{field.alias or to_camel(name)}"
        if field.description:
            yield path, " ".join(field.description.split())
        inner = _model(field.annotation)
        if inner is not None:
            yield from _documented(inner, f"{path}.")


def _model(annotation: Any) -> type[BaseModel] | None:
    """The model in an annotation such as `Model | None` or `tuple[Model, ...]`."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model(part)) is not None), None)
