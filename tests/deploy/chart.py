"""The chart: its folder, its value sets for tests, and functions that render it."""

from __future__ import annotations

import importlib.util
import json
import pickle
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm" / "sluice"
NAMESPACE = "sluice-system"

Object = dict[str, Any]

VALUE_SETS: dict[str, Object] = {
    file.name.removesuffix("-values.yaml"): yaml.safe_load(file.read_text())
    for file in sorted((CHART / "ci").glob("*-values.yaml"))
}


def _generate() -> ModuleType:
    """Import `deploy/generate.py`, whose folder is no package."""
    specification = importlib.util.spec_from_file_location("deploy_generate", DEPLOY / "generate.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


generate = _generate()


def rendered(values: Object) -> list[Object]:
    """Return the objects of the rendered chart, without hooks."""
    found: list[Object] = pickle.loads(_rendered(json.dumps(values)))
    return found


@cache
def _rendered(values: str) -> bytes:
    return pickle.dumps(generate.render(json.loads(values)))


def one(documents: list[Object], kind: str, name: str = "sluice") -> Object:
    """Return the only object of a kind and name."""
    (found,) = (each for each in documents if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return found


_TEXT = {"type": "string"}
_REFERENCE = {"type": "object", "required": ["name"], "properties": {"group": _TEXT, "kind": _TEXT, "name": _TEXT}}
_KEY = {
    "type": "object",
    "properties": {
        "algorithm": {"type": "string", "enum": ["RSA", "ECDSA", "Ed25519"]},
        "size": {"type": "integer"},
        "rotationPolicy": {"type": "string", "enum": ["Never", "Always"]},
    },
}
_CERT_MANAGER: dict[str, Object] = {
    "Certificate": {
        "type": "object",
        "required": ["secretName", "issuerRef"],
        "properties": {
            "secretName": _TEXT,
            "commonName": _TEXT,
            "duration": _TEXT,
            "isCA": {"type": "boolean"},
            "dnsNames": {"type": "array", "items": _TEXT},
            "issuerRef": _REFERENCE,
            "privateKey": _KEY,
        },
    },
    "Issuer": {
        "type": "object",
        "properties": {
            "selfSigned": {"type": "object"},
            "ca": {"type": "object", "required": ["secretName"], "properties": {"secretName": _TEXT}},
        },
    },
}
"""`spec` by kind, as cert-manager.io/v1 documents the fields that the chart may use."""


def foreign_kinds() -> Iterator[Object]:
    """Yield CustomResourceDefinitions of foreign kinds that the chart uses; those of Prometheus accept any field."""
    for group, kind in (
        ("cert-manager.io", "Certificate"),
        ("cert-manager.io", "Issuer"),
        ("monitoring.coreos.com", "ServiceMonitor"),
        ("monitoring.coreos.com", "PrometheusRule"),
    ):
        plural = f"{kind.lower()}s"
        schema = {
            "type": "object",
            "properties": {
                "spec": _CERT_MANAGER.get(kind) or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            },
        }
        yield {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{group}"},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
                "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
            },
        }
