"""`sluice kinds`: validation of custom kinds, preview of how Sluice reads an object, and RBAC rules of kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from admission.apimachinery.patches import json_patch
from admission.cli.arguments.groups import CommandGroup
from admission.cli.configuration.local_file import LocalFile
from admission.cli.configuration.settings import load_settings
from admission.cli.errors import CommandError
from admission.cli.output.printing import print_line, serialized
from admission.kinds import Conventions, DeclaredKind, NamespaceContext, check_metadata, parse_form
from admission.kinds.definitions import differences
from admission.kinds.registry import rights_beside, verbs
from admission.model.errors import InvalidObject, Misconfigured
from admission.model.manifests import parse_documents
from admission.model.quantity import format_amount

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from admission.kinds import Form, Kinds, Object
    from admission.model.workload import PodSet

_SERVER_METADATA: Final = {
    "uid": "",
    "resourceVersion": "0",
    "generation": 1,
    "creationTimestamp": "1970-01-01T00:00:00Z",
}
"""Metadata that an API server sets and adapters expect; the values do not influence the preview."""


@click.group(cls=CommandGroup)
def kinds() -> None:
    """Validate custom kinds, and print the RBAC rules that kinds require.

    \b
    Examples:
      sluice kinds check trainingrun.yaml --object example.yaml
      sluice kinds rbac --config sluice.yaml | kubectl apply -f -
    """


@kinds.command()
@click.argument("file", type=LocalFile())
@click.option("--object", "example", type=LocalFile(), help="Manifest of an object to preview.")
@click.option(
    "--crd",
    type=LocalFile(),
    help="CustomResourceDefinition to compare with, from `kubectl get crd NAME -o yaml`.",
)
def check(file: Path, example: Path | None, crd: Path | None) -> None:
    """Validate the description of a custom kind, and show how Sluice reads an object of it.

    FILE contains one description, as in integrations.kinds of the configuration. With
    --crd its names, versions and paths are compared with the definition. The exit code is
    1 if the description or the object is invalid.

    \b
    Examples:
      sluice kinds check trainingrun.yaml --object example.yaml
      sluice kinds check trainingrun.yaml --crd definition.yaml
    """
    document = _document(file)
    try:
        form = parse_form(document)
    except InvalidObject as error:
        raise CommandError(f"{file}: {InvalidObject(error.causes)}") from error
    if crd is not None:
        _compare(form, file, crd)
    print_line(f"{file}: {form.name}, gated by {'.'.join(form.suspend)}")
    if example is None:
        return
    kind = DeclaredKind(Conventions(), form)
    obj = _document(example)
    if obj.get("kind") != form.kind or str(obj.get("apiVersion", "")).rpartition("/")[0] != form.group:
        raise CommandError(f"{example}: is a {obj.get('apiVersion')} {obj.get('kind')}, not a {form.name}")
    try:
        check_metadata(obj)
    except Misconfigured as error:
        raise CommandError(f"{example}: {error}") from error
    metadata = {"namespace": "default", "name": "example", **_SERVER_METADATA, **(obj.get("metadata") or {})}
    for line in _preview(kind, {"spec": {}, **obj, "metadata": metadata}):
        print_line(f"  {line}")


def _compare(form: Form, file: Path, crd: Path) -> None:
    """Compare the description with a CustomResourceDefinition. Raises CommandError if they differ."""
    definition = _document(crd)
    if definition.get("kind") != "CustomResourceDefinition":
        raise CommandError(f"{crd}: is a {definition.get('kind')}, not a CustomResourceDefinition")
    try:
        found = list(differences(form, definition))
    except (AttributeError, KeyError, TypeError) as error:
        raise CommandError(f"{crd}: is not a complete CustomResourceDefinition: {error!r}") from error
    if found:
        raise CommandError(f"{file}: {InvalidObject(found)}")


@kinds.command()
@click.option("--config", type=LocalFile(), help="Configuration file of `sluice serve`.")
@click.option(
    "--service-account",
    default="sluice-system/sluice",
    show_default=True,
    metavar="NAMESPACE/NAME",
    help="ServiceAccount of `sluice serve`.",
)
def rbac(config: Path | None, service_account: str) -> None:
    """Print a ClusterRole with the rules that the enabled kinds require, and its binding.

    Kinds that are not queued may be listed, so that objects with a queue label are told about.

    The rules for Jobs are left out: they are part of the roles installed with Sluice.

    \b
    Example:
      sluice kinds rbac --config sluice.yaml | kubectl apply -f -
    """
    namespace, _, name = service_account.partition("/")
    if not namespace or not name:
        raise click.BadParameter("must be NAMESPACE/NAME", param_hint="--service-account")
    documents = roles_of_kinds(load_settings({}, config=config).integrations.registry(), namespace, name)
    click.echo("\n---\n".join(serialized(document, "yaml").strip() for document in documents))


def roles_of_kinds(registry: Kinds, namespace: str, account: str) -> list[dict[str, Any]]:
    """Return a ClusterRole with the rights that kinds require, and its binding to a ServiceAccount."""
    group = "rbac.authorization.k8s.io"
    meta = {"name": "sluice-kinds", "labels": {"app.kubernetes.io/name": "sluice"}}
    role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": meta, "rules": _rules(registry)}
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "sluice-kinds"},
        "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": account}],
    }
    return [role, binding]


def _rules(registry: Kinds) -> list[dict[str, Any]]:
    """Return the RBAC rules of the kinds: one for each API group and set of verbs, without those for Jobs."""
    plurals: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    needed = [(kind, verbs(kind)) for kind in registry.gated]
    needed += [(kind, ("list",)) for kind in registry.off]  # for those with a queue label, which are told about
    for kind, of_kind in needed:
        if (kind.group, kind.kind) != ("batch", "Job"):
            plurals.setdefault((kind.group, of_kind), []).append(kind.plural)
    for right in rights_beside(registry):
        plurals.setdefault((right.group, right.verbs), []).extend(right.resources)
    return [
        {"apiGroups": [group], "resources": names, "verbs": list(allowed)}
        for (group, allowed), names in plurals.items()
    ]


def _document(file: Path) -> Object:
    """Return the only document of a file. Raises CommandError if it cannot be read, or has another number of them."""
    try:
        documents = parse_documents(file.read_text(), source=str(file))
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{file} cannot be read: {error}") from error
    except InvalidObject as error:
        raise CommandError(str(error)) from error
    if len(documents) != 1:
        raise CommandError(f"{file}: must contain one document, but has {len(documents)}")
    return dict(documents[0].body)


def _pod_count(pod_set: PodSet) -> str:
    """Return the number of pods: `4`, or `2 to 4` if it may start with fewer."""
    return f"{pod_set.count}" if pod_set.min_count is None else f"{pod_set.min_count} to {pod_set.count}"


def _preview(kind: DeclaredKind, obj: Object) -> Iterator[str]:
    """Yield lines about queue, gate, pod sets and status of an object. Raises CommandError if it cannot be queued."""
    observed = kind.observe(obj)
    yield f"queue: {observed.queue or 'none'}"
    gate = kind.gate(obj)
    yield f"suspended: {'no; the webhook suspends it' if gate else 'yes'}"
    try:
        pod_sets = kind.pod_sets(obj, NamespaceContext())
    except Misconfigured as error:
        raise CommandError(str(error)) from error
    for pod_set, place in zip(pod_sets, kind.places(obj), strict=True):
        amounts = (f"{resource} {format_amount(resource, amount)}" for resource, amount in pod_set.requests.items())
        requests = ", ".join(amounts) or "no requests"
        yield f"pod set {pod_set.name}: {_pod_count(pod_set)} pods of {requests} ({place.path})"
    gated = json_patch(obj, gate)
    if not kind.gated_by.is_closed(gated):
        raise CommandError(f"{'.'.join(kind.form.suspend)}: cannot be set in this object")
    observed = kind.observe(gated)
    finished = observed.finished
    words = [word for word, holds in (("active", observed.active), ("ready", observed.ready)) if holds]
    words += [] if finished is None else ["succeeded" if finished.succeeded else "failed"]
    yield f"status: {', '.join(words) or 'waiting'}"
