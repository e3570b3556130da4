"""`sluice kinds`: checks of a description of a kind against an object and its CRD, and RBAC rules of kinds."""

from __future__ import annotations

import pytest
import yaml
from click.testing import CliRunner

from admission.cli.commands.kinds import kinds

FORM = """\
group: example.com
kind: TrainingRun
plural: trainingruns
versions: [v1]
suspend: spec.paused
podSets:
- path: spec.roles[*]
  nameFrom: role
  template: template
  replicas: count
active: [{path: "status.roles[*].running", above: 0}]
ready: [{condition: Ready}]
succeeded: [{condition: Succeeded}]
failed: [{path: status.phase, in: [Failed, Aborted]}]
"""
OBJECT = """\
apiVersion: example.com/v1
kind: TrainingRun
metadata: {name: run, labels: {sluice.dev/queue-name: main}}
spec:
  roles:
  - role: actor
    count: 2
    template: {spec: {containers: [{name: a, resources: {requests: {cpu: "8", memory: 64Gi}}}]}}
  - {role: critic, template: {spec: {containers: [{name: a, resources: {requests: {cpu: 500m}}}]}}}
"""


def run(*arguments):
    result = CliRunner().invoke(kinds, [str(each) for each in arguments])
    return result.exit_code, result.output + str(result.exception or "")


@pytest.fixture
def files(tmp_path):
    form, example = tmp_path / "form.yaml", tmp_path / "object.yaml"
    form.write_text(FORM)
    example.write_text(OBJECT)
    return form, example


def test_check_prints_the_workload_derived_from_an_object(files):
    form, example = files
    code, output = run("check", form, "--object", example)
    assert code == 0
    assert output.splitlines() == [
        f"{form}: example.com/trainingrun, gated by spec.paused",
        "  queue: main",
        "  suspended: no; the webhook suspends it",
        "  pod set actor: 2 pods of cpu 8, memory 64Gi (spec.roles[0].template)",
        "  pod set critic: 1 pods of cpu 500m (spec.roles[1].template)",
        "  status: waiting",
    ]


def test_min_count_of_a_pod_set_is_printed_and_checked(files, crd):
    form, example = files
    form.write_text(FORM.replace("  replicas: count\n", "  replicas: count\n  minCount: least\n"))
    example.write_text(OBJECT.replace("    count: 2\n", "    count: 8\n    least: 3\n"))
    code, output = run("check", form, "--object", example)
    assert code == 0
    assert "  pod set actor: 3 to 8 pods of cpu 8, memory 64Gi (spec.roles[0].template)" in output.splitlines()
    assert "  pod set critic: 1 pods of cpu 500m (spec.roles[1].template)" in output.splitlines()
    annotated = OBJECT.replace("{name: run,", "{name: run, annotations: {sluice.dev/min-count: actors=1},")
    example.write_text(annotated)
    code, output = run("check", form, "--object", example)
    assert code == 1
    assert '"actors" is no pod set that can start with fewer pods: name actor or critic, as in actor=2' in output
    code, output = run("check", form, "--crd", crd)
    assert code == 1
    assert "podSets[0].minCount: spec.roles[*].least is not in version v1 of the definition" in output


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("plural: trainingruns", "plurals: runs", "plurals: is not known here"),
        ("suspend: spec.paused", "suspend: spec..paused", 'suspend: "spec..paused" is no path'),
        ("suspend: spec.paused", "suspend: spec.a[*].b", "suspend: must be one field"),
        ("versions: [v1]", "versions: v1", "versions: must be a list of API versions"),
        (
            "suspend: spec.paused",
            "managedBy: {path: spec.by}\nsuspend: spec.paused",
            "managedBy.value: must be the value for",
        ),
        ("  template: template\n", "", "podSets[0].template: is missing"),
        ("  nameFrom: role\n", "", "podSets[0].name: give name, or nameFrom"),
        ("  replicas: count\n", "  minCount: true\n", "podSets[0].minCount: needs replicas, which a start"),
        ("  replicas: count\n", "  replicas: count\n  minCount: 2\n", 'podSets[0].minCount: "2" is no path'),
        ("{condition: Ready}", "{when: ready}", "ready[0].when: is not known here"),
        ("{condition: Ready}", "{path: status.ready}", "ready[0]: must be condition, or path with in"),
        ("above: 0", "above: many", "active[0]: must be condition"),
        ("group: example.com", "group: Example", "group: must be an API group"),
        (
            "group: ex",
            "children: [{group: batch, kind: Job, name: '{x}'}]\ngroup: ex",
            "children[0].name: may hold {owner}",
        ),
        ("group: ex", "children: [{group: batch, kind: Job}]\ngroup: ex", "children[0].name: give name, or nameFrom"),
    ],
)
def test_invalid_description_is_reported_with_the_field_path(files, old, new, message):
    form, _ = files
    form.write_text(FORM.replace(old, new))
    code, output = run("check", form)
    assert code == 1
    assert message in output


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("kind: TrainingRun", "kind: Other", "not a example.com/trainingrun"),
        ("role: critic", "role: actor", 'there are two pod sets "actor"'),
        ("cpu: 500m", "cpu: some", "spec.roles[1].template.spec.containers[0].resources.requests.cpu"),
        ("  roles:", "  rolls:", "has no pod template"),
        ("metadata:", "metadata: {labels: 3}\nwas:", "metadata.labels: must be an object"),
        ("metadata:", "metadata: x\nwas:", "metadata: must be an object"),
    ],
)
def test_invalid_object_is_reported_with_the_field_path(files, old, new, message):
    form, example = files
    example.write_text(OBJECT.replace(old, new))
    code, output = run("check", form, "--object", example)
    assert code == 1
    assert message in output


def object_schema(**properties):
    return {"type": "object", "properties": properties}


def definition():
    """The CustomResourceDefinition that FORM describes."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    role = object_schema(role={"type": "string"}, count={"type": "integer"}, template=anything)
    spec = object_schema(paused={"type": "boolean"}, roles={"type": "array", "items": role})
    roles = {"type": "object", "additionalProperties": object_schema(running={"type": "integer"})}
    status = object_schema(roles=roles, phase={"type": "string"}, conditions={"type": "array", "items": anything})
    schema = {"openAPIV3Schema": object_schema(spec=spec, status=status)}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "spec": {
            "group": "example.com",
            "names": {"kind": "TrainingRun", "plural": "trainingruns"},
            "versions": [
                {"name": "v1", "served": True, "schema": schema},
                {"name": "v0", "served": False, "schema": {"openAPIV3Schema": object_schema()}},
            ],
        },
    }


@pytest.fixture
def crd(tmp_path):
    file = tmp_path / "crd.yaml"
    file.write_text(yaml.safe_dump(definition()))
    return file


def test_description_that_matches_its_crd_passes(files, crd):
    assert run("check", files[0], "--crd", crd)[0] == 0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "spec.paused",
            "spec.pause",
            "suspend: spec.pause is not in version v1 of the definition: spec has no pause; did you mean paused?",
        ),
        (
            "suspend: spec.paused",
            "suspend: spec.roles",
            "suspend: spec.roles is of type array in version v1, and must be",
        ),
        ("spec.roles[*]", "spec.rolls[*]", "podSets[0].path: spec.rolls[*] is not in version v1"),
        ("replicas: count", "replicas: copies", "podSets[0].replicas: spec.roles[*].copies is not in version v1"),
        ("status.phase", "status.fase", "failed[0]: status.fase is not in version v1"),
        ("plural: trainingruns", "plural: runs", "plural: is runs, but the definition says trainingruns"),
        ("versions: [v1]", "versions: [v0]", "versions: has none of the versions that are served: v1"),
    ],
)
def test_description_that_contradicts_its_crd_is_reported(files, crd, old, new, message):
    files[0].write_text(FORM.replace(old, new))
    code, output = run("check", files[0], "--crd", crd)
    assert code == 1
    assert message in output
    assert len(output.splitlines()) == 1


@pytest.mark.parametrize("content", ["kind: Pod", "{kind: CustomResourceDefinition, spec: {versions: 3}}"])
def test_file_that_is_not_a_crd_is_reported(files, tmp_path, content):
    file = tmp_path / "crd.yaml"
    file.write_text(content)
    code, output = run("check", files[0], "--crd", file)
    assert code == 1
    assert f"{file}: " in output
    assert "CustomResourceDefinition" in output


def test_rbac_rules_cover_the_configured_kinds(tmp_path):
    config = tmp_path / "sluice.yaml"
    integrations = {
        "frameworks": ["batch/job", "ray.io/rayjob", "ray.io/raycluster"],
        "kinds": [yaml.safe_load(FORM)],
    }
    config.write_text(yaml.safe_dump({"integrations": integrations}))
    code, output = run("rbac", "--config", config, "--service-account", "queues/sluice")
    assert code == 0
    role, binding = yaml.safe_load_all(output)
    assert [(rule["apiGroups"], rule["resources"]) for rule in role["rules"] if rule["verbs"] != ["list"]] == [
        (["ray.io"], ["rayjobs", "rayclusters"]),
        (["example.com"], ["trainingruns"]),
    ]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "namespace": "queues", "name": "sluice"}]


@pytest.mark.parametrize(
    ("integrations", "message"),
    [
        ({"frameworks": ["batch/job", "jobset.x-k8s.io/jobsets"]}, "did you mean jobset.x-k8s.io/jobset?"),
        ({"kinds": [{"group": "example.com"}]}, "kinds[0].suspend: is missing"),
    ],
)
def test_rbac_reports_an_invalid_integrations_setting(tmp_path, integrations, message):
    config = tmp_path / "sluice.yaml"
    config.write_text(yaml.safe_dump({"integrations": integrations}))
    code, output = run("rbac", "--config", config)
    assert code == 1
    assert message in output


def test_rbac_has_the_rules_of_all_kinds_by_default():
    code, output = run("rbac")
    assert code == 0
    (role, _) = yaml.safe_load_all(output)
    resources = {resource for rule in role["rules"] for resource in rule["resources"]}
    assert {"pods", "statefulsets", "jobsets", "trainjobs", "rayclusters", "workflows"} <= resources


def test_rbac_of_jobs_alone_lets_list_the_other_kinds(tmp_path):
    config = tmp_path / "sluice.yaml"
    config.write_text("integrations: {frameworks: [batch/job]}\n")
    code, output = run("rbac", "--config", str(config))
    assert code == 0
    (role, _) = yaml.safe_load_all(output)
    assert {tuple(rule["verbs"]) for rule in role["rules"]} == {("list",)}
