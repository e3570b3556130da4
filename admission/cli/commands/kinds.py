"""`sluice kinds`: which kinds of objects are queued, what Sluice sees in one, and the rights that they need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from admission.apimachinery.patches import json_patch
from admission.cli.arguments.groups import Group
from admission.cli.configuration.local_file import LocalFile
from admission.cli.configuration.settings import load_settings
from admission.cli.errors import CommandError
from admission.cli.output.printing import print_line, serialized
from admission.kinds import BATCH_JOB, DeclaredKind, NamespaceContext, all_kinds, check_metadata, parse_form
from admission.kinds.definitions import differences
from admission.kinds.registry import rights_beside, verbs
from admission.model.errors import InvalidObject, Misconfigured
from admission.model.manifests import parse_documents
from admission.model.quantity import format_amount

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from admission.kinds import Form, Kind, Kinds, Object
    from admission.model.workload import PodSet

_SERVED: Final = {"uid": "", "resourceVersion": "0", "generation": 1, "creationTimestamp": "1970-01-01T00:00:00Z"}
"""What an API server adds to an object, and what matters to nothing that is shown."""


@click.group(cls=Group)
def kinds() -> None:
    """Check descriptions of kinds, and print the rights that the kinds need.

    \b
    Examples:
      sluice kinds check trainingrun.yaml --object example.yaml
      sluice kinds rbac --config sluice.yaml | kubectl apply -f -
    """


@kinds.command()
@click.argument("file", type=LocalFile())
@click.option("--object", "example", type=LocalFile(), help="A manifest of that kind to look at.")
@click.option(
    "--crd",
    type=LocalFile(),
    help="The CustomResourceDefinition: `kubectl get crd NAME -o yaml`.",
)
def check(file: Path, example: Path | None, crd: Path | None) -> None:
    """Say what is wrong in the description of a kind, and what Sluice sees in an object.

    FILE holds one description, as it stands in integrations.kinds of the configuration.
    With --crd its names, versions and paths are looked for in the definition. The exit code
    is 1 if something is wrong with it or with the object.

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
    (kind,) = all_kinds(frameworks=(), own=[form])
    obj = _document(example)
    if obj.get("kind") != form.kind or str(obj.get("apiVersion", "")).rpartition("/")[0] != form.group:
        raise CommandError(f"{example}: is a {obj.get('apiVersion')} {obj.get('kind')}, not a {form.name}")
    try:
        check_metadata(obj)
    except Misconfigured as error:
        raise CommandError(f"{example}: {error}") from error
    metadata = {"namespace": "default", "name": "example", **_SERVED, **(obj.get("metadata") or {})}
    for line in _seen(kind, {"spec": {}, **obj, "metadata": metadata}):
        print_line(f"  {line}")


def _compare(form: Form, file: Path, crd: Path) -> None:
    """Raises CommandError if the definition has something otherwise."""
    definition = _document(crd)
    if definition.get("kind") != "CustomResourceDefinition":
        raise CommandError(f"{crd}: is a {definition.get('kind')}, not a CustomResourceDefinition")
    try:
        found = list(differences(form, definition))
    except (AttributeError, KeyError, TypeError) as error:
        raise CommandError(f"{crd}: is no complete CustomResourceDefinition: {error!r}") from error
    if found:
        raise CommandError(f"{file}: {InvalidObject(found)}")


@kinds.command()
@click.option("--config", type=LocalFile(), help="The configuration of `sluice serve`.")
@click.option(
    "--service-account",
    default="sluice-system/sluice",
    show_default=True,
    metavar="NAMESPACE/NAME",
    help="Who `sluice serve` is.",
)
def rbac(config: Path | None, service_account: str) -> None:
    """Print the ClusterRole with the rights that the kinds of a configuration need, and its binding.

    Rights to Jobs are part of the roles that Sluice is installed with, and are left out.

    \b
    Example:
      sluice kinds rbac --config sluice.yaml | kubectl apply -f -
    """
    namespace, _, name = service_account.partition("/")
    if not namespace or not name:
        raise click.BadParameter("must be NAMESPACE/NAME", param_hint="--service-account")
    rules = _rules(load_settings({}, config=config).integrations.registry())
    if not rules:
        raise CommandError(f"no kind beside {BATCH_JOB} is on: give the configuration by --config")
    group = "rbac.authorization.k8s.io"
    meta = {"name": "sluice-kinds", "labels": {"app.kubernetes.io/name": "sluice"}}
    role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": meta, "rules": rules}
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "sluice-kinds"},
        "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": name}],
    }
    click.echo("\n---\n".join(serialized(document, "yaml").strip() for document in (role, binding)))


def _rules(registry: Kinds) -> list[dict[str, Any]]:
    """One for each API group."""
    plurals: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for kind in registry:
        if (kind.group, kind.kind) != ("batch", "Job"):
            plurals.setdefault((kind.group, verbs(kind)), []).append(kind.plural)
    for right in rights_beside(registry):
        plurals.setdefault((right.group, right.verbs), []).extend(right.resources)
    return [
        {"apiGroups": [group], "resources": names, "verbs": list(needed)} for (group, needed), names in plurals.items()
    ]


def _document(file: Path) -> Object:
    try:
        documents = parse_documents(file.read_text(), source=str(file))
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{file} cannot be read: {error}") from error
    except InvalidObject as error:
        raise CommandError(str(error)) from error
    if len(documents) != 1:
        raise CommandError(f"{file}: must hold one document, and has {len(documents)}")
    return dict(documents[0].body)


def _number(pod_set: PodSet) -> str:
    return f"{pod_set.count}" if pod_set.min_count is None else f"{pod_set.min_count} to {pod_set.count}"


def _seen(kind: Kind, obj: Object) -> Iterator[str]:
    """What Sluice sees in an object, a line for each thing. Raises CommandError for what it could not queue."""
    assert isinstance(kind, DeclaredKind), kind
    seen = kind.observe(obj)
    yield f"queue: {seen.queue or 'none'}"
    gate = kind.gate(obj)
    yield f"suspended: {'no; the webhook suspends it' if gate else 'yes'}"
    try:
        pod_sets = kind.pod_sets(obj, NamespaceContext())
    except Misconfigured as error:
        raise CommandError(str(error)) from error
    for pod_set, place in zip(pod_sets, kind.places(obj), strict=True):
        amounts = (f"{resource} {format_amount(resource, amount)}" for resource, amount in pod_set.requests.items())
        yield f"pod set {pod_set.name}: {_number(pod_set)} pods of {', '.join(amounts) or 'no requests'} ({place.path})"
    gated = json_patch(obj, gate)
    if not kind.gated_by.is_closed(gated):
        raise CommandError(f"{'.'.join(kind.form.suspend)}: cannot be set in this object")
    seen = kind.observe(gated)
    ended = seen.finished
    words = [word for word, holds in (("active", seen.active), ("ready", seen.ready)) if holds]
    words += [] if ended is None else ["succeeded" if ended.succeeded else "failed"]
    yield f"status: {', '.join(words) or 'waiting'}"
