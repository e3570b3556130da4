"""Writes what is made of something else in this folder: the chart's copies, and the kustomize bases from the chart.

`make manifests` runs it; a test compares what is there with what it would write.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import helm_python
import yaml

HERE = Path(__file__).parent
CHART = HERE / "helm" / "sluice"
NAMESPACE = "sluice-system"

COPIES = {
    HERE / name: CHART / "files" / name for name in ("rbac/sluice.yaml", "rbac/users.yaml", "prometheus/rules.yaml")
}
"""What the chart takes from elsewhere: a chart holds no files but its own."""

BASES = {
    "base": {},
    "postgresql": {
        "replicas": 2,
        "database": {"type": "postgresql", "postgresql": {"secretName": "sluice-database"}},
    },
}
"""The values of each kustomize base."""

_NAMESPACE = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
}


def render(values: dict[str, object], *, chart: Path = CHART, namespace: str = NAMESPACE) -> list[dict[str, object]]:
    """The objects of the chart with some values, hooks left out, in a fixed order."""
    with helm_python.Chart.load(chart) as loaded:
        texts = loaded.render(values, name="sluice", namespace=namespace)
    documents = [
        document
        for name, text in sorted(texts.items())
        if not name.endswith("NOTES.txt")
        for document in yaml.safe_load_all(text)
        if document
    ]
    return [one for one in documents if "helm.sh/hook" not in one["metadata"].get("annotations", {})]


def base(values: dict[str, object]) -> str:
    """The manifests of one kustomize base."""
    head = "# Generated from deploy/helm/sluice by `make manifests`; change the chart instead.\n"
    return head + yaml.safe_dump_all([_NAMESPACE, *render(values)], sort_keys=False, width=200)


def main() -> None:
    """Write everything."""
    for source, copy in COPIES.items():
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
    for name, values in BASES.items():
        folder = HERE / "kustomize" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "sluice.yaml").write_text(base(values))


if __name__ == "__main__":
    main()
