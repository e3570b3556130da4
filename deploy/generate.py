"""Generator of files in this folder: the chart's values schema and kinds, and the kustomize bases.

Run by `make manifests`; a test compares the files with its output.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import helm_python
import yaml
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from admission.cli.configuration.settings import Settings
from admission.kinds import APP_WRAPPER, BATCH_JOB, JOB_SET, MCAD, all_kinds, enabled, frameworks_known
from admission.kinds.foreign_groups import FOREIGN
from admission.kinds.registry import rights_beside, verbs

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
CHART = HERE / "helm" / "sluice"
NAMESPACE = "sluice-system"

KINDS = CHART / "files" / "kinds.yaml"

SCHEMA = CHART / "values.schema.json"

BASES: Final[dict[str, dict[str, object]]] = {
    "base": {},
    "postgresql": {
        "replicas": 2,
        "database": {"type": "postgresql", "postgresql": {"secretName": "sluice-database"}},
    },
}
"""Chart values of each kustomization."""

_NAMESPACE = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
}


def render(values: dict[str, object], *, chart: Path = CHART, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
    """Return the objects of the chart for these values, without hooks, in a fixed order."""
    with helm_python.Chart.load(chart) as loaded:
        texts = loaded.render(values, name="sluice", namespace=namespace)
    documents = [
        document
        for name, text in sorted(texts.items())
        if not name.endswith("NOTES.txt")
        for document in yaml.load_all(text, yaml.CSafeLoader)
        if document
    ]
    return [one for one in documents if "helm.sh/hook" not in one["metadata"].get("annotations", {})]


_HEAD = "# Generated from deploy/helm/sluice by `make manifests`; change the chart instead.\n"


def kustomizations() -> dict[str, str]:
    """Return the files of the kustomizations by path: the base has all objects, the other what it changes of these."""
    before, after = ({_target(each): each for each in render(BASES[name])} for name in ("base", "postgresql"))
    patches = [(key, [{"$patch": "delete", **_identity(each)}]) for key, each in before.items() if key not in after]
    patches += [(key, [*_operations(before[key], each)]) for key, each in after.items() if key in before]
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["../base", "added.yaml"],
        "patches": [{"target": dict(key), "patch": _patch(patch)} for key, patch in patches if patch],
    }
    files: dict[str, list[Any]] = {
        "base/sluice.yaml": [_NAMESPACE, *before.values()],
        "postgresql/added.yaml": [each for key, each in after.items() if key not in before],
        "postgresql/kustomization.yaml": [kustomization],
    }
    return {path: _HEAD + _yaml(documents) for path, documents in files.items()}


def _yaml(documents: list[Any]) -> str:
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=200)


class _Dumper(yaml.CSafeDumper):
    """Writes texts of several lines as blocks."""


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _patch(patch: list[Any]) -> str:
    """Return a patch of kustomize as YAML: the deletion of an object, or operations of a JSON patch."""
    return _yaml(patch if "$patch" in patch[0] else [patch])


def _identity(each: dict[str, Any]) -> dict[str, Any]:
    metadata = {name: each["metadata"][name] for name in ("name", "namespace") if name in each["metadata"]}
    return {"apiVersion": each["apiVersion"], "kind": each["kind"], "metadata": metadata}


def _target(each: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return what names an object in kustomize."""
    group, _, version = each["apiVersion"].rpartition("/")
    names = {"group": group, "version": version, "kind": each["kind"], **_identity(each)["metadata"]}
    return tuple((name, value) for name, value in names.items() if value)


def _operations(before: Any, after: Any, path: str = "") -> Iterator[dict[str, Any]]:
    """Yield the JSON patch that makes `after` of `before`; lists are replaced as a whole.

    The operation comes last: kustomize drops the newline at the end of a patch, which may be that of a value.
    """
    if not (isinstance(before, dict) and isinstance(after, dict)):
        if before != after:
            yield {"path": path, "value": after, "op": "replace"}
        return
    for name in [*before, *(name for name in after if name not in before)]:
        where = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
        if name not in after:
            yield {"path": where, "op": "remove"}
        elif name not in before:
            yield {"path": where, "value": after[name], "op": "add"}
        else:
            yield from _operations(before[name], after[name], where)


def kinds() -> str:
    """Return YAML with group, resource and verbs of each kind for the setting `integrations`.

    `beside`: rights on other objects than those of the kind. `needs`: a kind without which it is not queued. The roles
    of `deploy/rbac` have the rights for batch/job.
    """
    known: dict[str, dict[str, object]] = {}
    for name in sorted(frameworks_known()):
        kinds = all_kinds(frameworks=(name, *([APP_WRAPPER] if name == MCAD else [])), group_labels=FOREIGN)
        kind = kinds.gated[0]
        known[name] = (
            {} if name == BATCH_JOB else {"group": kind.group, "resource": kind.plural, "verbs": [*verbs(kind)]}
        )
        if needed := [each for each in ("pod", JOB_SET) if each != name and name not in enabled(None, [each])]:
            known[name]["needs"] = needed[0]
        if rights := [*rights_beside(kinds)]:
            known[name]["beside"] = [
                {"group": right.group, "resources": list(right.resources), "verbs": list(right.verbs)}
                for right in rights
            ]
    return "# Generated by `make manifests`.\n" + yaml.safe_dump(known)


class _InputSchema(GenerateJsonSchema):
    """Generator of the schema of users' input: a field with a `before` validator accepts any value."""

    def function_before_schema(self, schema: object) -> JsonSchemaValue:
        return {}


def schema() -> str:
    """Return the schema of the chart's values: `values.schema.json` beside this file, plus the settings' for `config`.

    Constraints between fields are not part of it: Sluice checks them when it starts.
    """
    document = json.loads((HERE / "values.schema.json").read_text())
    template = "#/definitions/configuration/definitions/{model}"
    found: dict[str, Any] = Settings.model_json_schema(schema_generator=_InputSchema, ref_template=template)
    properties = {to_camel(name): field for name, field in found["properties"].items()}
    document["definitions"]["configuration"] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "apiVersion": {"const": "sluice.dev/v1"},
            "kind": {"const": "Configuration"},
            **_without_titles(properties),
        },
        "definitions": _without_titles(found["$defs"]),
    }
    return json.dumps(document, indent=2) + "\n"


def _without_titles(schemas: Any) -> Any:
    """Return the schemas without titles, which only repeat the names of fields."""
    if isinstance(schemas, dict):
        return {key: _without_titles(value) for key, value in schemas.items() if not _is_title(key, value)}
    return [_without_titles(each) for each in schemas] if isinstance(schemas, list) else schemas


def _is_title(key: str, value: object) -> bool:
    return key == "title" and isinstance(value, str)


def main() -> None:
    """Write all generated files."""
    KINDS.write_text(kinds())
    SCHEMA.write_text(schema())
    for path, text in kustomizations().items():
        (HERE / "kustomize" / path).write_text(text)


if __name__ == "__main__":
    main()
