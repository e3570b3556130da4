"""`sluice apply` and `diff` of quota objects of other schedulers, alone and among manifests of Sluice."""

from __future__ import annotations

import json

import pytest
import yaml

ALONE = "its effects and warnings are as if the other objects were not applied"
CAPACITY = ("--capacity", "cpu=10,memory=10Gi")


def volcano(name="a", **spec):
    head = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}}
    return json.dumps(head | {"spec": {"deserved": {"cpu": 4}, **spec}})


def kai(name, **spec):
    head = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}}
    return json.dumps(head | {"spec": spec})


def elastic(version, namespace="", **metadata):
    metadata = {"name": "gold", **({"namespace": namespace} if namespace else {}), **metadata}
    return json.dumps({"apiVersion": version, "kind": "ElasticQuota", "metadata": metadata,
                       "spec": {"min": {"cpu": 2}, "max": {"cpu": 4}}})  # fmt: skip


SUBTREE = (
    "{apiVersion: quota.codeflare.dev/v1alpha1, kind: QuotaSubtree, metadata: {name: a, labels: {tree: t}}, spec: "
)
EACH = {
    "volcano": (volcano("gold"), "gold", "cohort.sluice.dev/volcano-root created"),
    "kai": (
        kai("gold", resources={"cpu": {"quota": 500, "limit": 500}}),
        "gold",
        "cohort.sluice.dev/kai-queues created",
    ),
    "koordinator": (
        elastic("scheduling.sigs.k8s.io/v1alpha1"),
        "gold",
        "cohort.sluice.dev/koordinator-root-quota created",
    ),
    "scheduler-plugins": (
        elastic("scheduling.x-k8s.io/v1alpha1", "team-b"),
        "team-b",
        "cohort.sluice.dev/elastic-quotas created",
    ),
    "mcad": (
        SUBTREE + "{children: [{name: gold, quotas: {requests: {cpu: 2}}}]}}",
        "t.gold",
        "resourceflavor.sluice.dev/default created",
    ),
    "yunikorn": (
        "{kind: ConfigMap, data: {queues.yaml: 'partitions: [{name: default, queues: [{name: gold}]}]'}}",
        "root.gold",
        "cohort.sluice.dev/yunikorn-root created",
    ),
}


@pytest.mark.parametrize("system", EACH)
async def test_apply_translates_quotas_of_each_scheduler_and_is_idempotent(sluice, system):
    text, queue, top = EACH[system]
    again = []
    for _ in range(2):
        applied = await sluice("apply", "-f", "-", "-n", "team-a", *CAPACITY, stdin=text)
        assert applied.exit_code == 0, applied.stderr
        again.append(applied.stdout)
    assert top in again[0].splitlines()
    assert f"clusterqueue.sluice.dev/{queue} created" in again[0]
    assert "localqueue.sluice.dev/" in again[0]
    assert again[1] == again[0].replace(" created", " unchanged")
    imported = await sluice("import", system, "-f", "-", "-n", "team-a", *CAPACITY, stdin=text)
    assert imported.stdout.endswith(": there is nothing to do\n"), "an import makes the same of it"
    for flags, code in ((CAPACITY, 0), (("--capacity", "cpu=20,memory=10Gi"), int(system != "mcad"))):
        different = await sluice("diff", "-f", "-", "-n", "team-a", *flags, stdin=text)
        assert (different.exit_code, bool(different.stdout)) == (code, bool(code))


async def test_folder_may_mix_quotas_of_other_schedulers_and_sluice_objects(sluice, tmp_path):
    (tmp_path / "1.yaml").write_text(
        "{apiVersion: sluice.dev/v1, kind: LocalQueue, metadata: {name: own, namespace: n}, spec: {clusterQueue: a}}\n"
        "---\n{apiVersion: sluice.dev/v1, kind: ResourceFlavor, metadata: {name: default}, "
        "spec: {nodeLabels: {pool: gpu}}}\n"
    )
    (tmp_path / "2.json").write_text(json.dumps({"kind": "List", "items": [json.loads(volcano(reclaimable=False))]}))
    (tmp_path / "3.yaml").write_text(volcano("b"))
    for _ in range(2):
        applied = await sluice("apply", "-f", str(tmp_path), *CAPACITY)
        assert applied.exit_code == 0, applied.stderr
    flavor, *rest = applied.stdout.splitlines()
    assert flavor == "resourceflavor.sluice.dev/default unchanged"
    assert [line.split()[0].partition("/")[2] for line in rest] == ["volcano-root", "a", "b", "own"]
    assert "pool: gpu" in (await sluice("get", "flavor", "default", "-o", "yaml")).stdout
    told = applied.stderr.splitlines()
    assert told[0].startswith("note: clusterqueue/a: spec.reclaimable: quota that it borrows can be reclaimed")
    assert told[1:] == ["note: no LocalQueue points to the Queues of Volcano: use -n NAMESPACE to create them"]


async def test_apply_of_foreign_quotas_keeps_an_existing_flavor_unchanged(sluice):
    await sluice("create", "flavor", "default", "--node-labels", "pool=gpu")
    for flags in ((), ("--server-side",)):
        applied = await sluice("apply", "-f", "-", *CAPACITY, *flags, stdin=volcano())
        assert applied.exit_code == 0, applied.stderr
    assert "pool: gpu" in (await sluice("get", "flavor", "default", "-o", "yaml")).stdout


@pytest.mark.parametrize("how", ["client", "server"])
async def test_dry_run_without_capacity_prints_a_note_and_apply_is_refused(sluice, how):
    tried = await sluice("apply", "-f", "-", "-n", "ns", f"--dry-run={how}", stdin=volcano())
    assert tried.exit_code == 0, tried.output
    assert "clusterqueue.sluice.dev/a created" in tried.stdout
    assert "note: some queues may use more cpu, memory than their guarantee" in tried.stderr
    assert (await sluice("get", "clusterqueues")).stdout == ""
    refused = await sluice("apply", "-f", "-", "-n", "ns", stdin=volcano())
    assert refused.exit_code == 1
    assert "--capacity cpu=...,memory=..." in refused.stderr
    assert refused.stderr.endswith(
        "error: nothing was written, because queues could use less than before; use --capacity\n"
    )
    assert (await sluice("get", "clusterqueues")).stdout == ""


@pytest.mark.costly
@pytest.mark.parametrize("command", [("apply", "-n", "ns"), ("import", "volcano", "--yes")])
async def test_queue_of_the_cohort_that_is_missing_from_the_files_causes_a_note(sluice, command):
    await sluice("apply", "-f", "-", "-n", "ns", *CAPACITY, stdin=volcano("a"))
    both = await sluice(*command, "-f", "-", *CAPACITY, stdin=volcano("a") + "\n---\n" + volcano("b"))
    assert (both.exit_code, both.stderr) == (0, "")
    alone = await sluice(*command, "-f", "-", *CAPACITY, stdin=volcano("b"))
    assert alone.stderr == (
        'note: clusterqueue/a: is in Cohort "volcano-root" but not in the files, so that its quota is added to '
        "--capacity: specify all queues together, or delete it\n"
    )


@pytest.mark.costly
@pytest.mark.parametrize("output", ["json", "yaml"])
@pytest.mark.parametrize("dry_run", ["none", "client", "server"])
async def test_json_and_yaml_output_contain_a_report_of_each_object(sluice, output, dry_run):
    own = "\n---\n" + OWN.strip("-\n").replace("name: a", "name: own")
    text = volcano(reclaimable=False) + "\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: n}}" + own
    flags = ("-n", "team-a", *CAPACITY, "--dry-run", dry_run, "-o", output)
    applied = await sluice("apply", "-f", "-", *flags, stdin=text)
    assert applied.exit_code == 0, applied.stderr
    document = yaml.safe_load(applied.stdout)
    made_of = 'standard input: document 1: Queue "a"'
    note = (
        "spec.reclaimable: quota that it borrows can be reclaimed nevertheless; to avoid that, set "
        "reclaimWithinCohort: Never in the other ClusterQueues, or borrowingLimit: 0 in this one"
    )
    assert document["report"] == {
        "dryRun": dry_run,
        "objects": [
            {"kind": "ResourceFlavor", "name": "default", "outcome": "created"},
            {"kind": "Cohort", "name": "volcano-root", "outcome": "created", "madeOf": 'Queue "root"'},
            {"kind": "ClusterQueue", "name": "own", "outcome": "created"},
            {"kind": "ClusterQueue", "name": "a", "outcome": "created", "madeOf": made_of, "notes": [note]},
            {"kind": "LocalQueue", "namespace": "team-a", "name": "a", "outcome": "created", "madeOf": made_of},
        ],
        "leftOut": [],
        "notes": [
            "standard input: document 2: skipped a Namespace; create it in the cluster with kubectl",
            *([f"the dry run judges each object alone: {ALONE}"] if dry_run == "server" else []),
        ],
    }
    assert (document["kind"], [(item["kind"], item["metadata"]["name"]) for item in document["items"]]) == (
        "List",
        [(each["kind"], each["name"]) for each in document["report"]["objects"]],
    )
    assert ("uid" in document["items"][0]["metadata"]) == (dry_run != "client"), "as the server has them"
    again = await sluice("apply", "-f", "-", "-n", "team-a", "-o", "jsonpath={.report.objects[*].outcome}", *CAPACITY,
                         stdin=text)  # fmt: skip
    assert again.stdout == " ".join(["unchanged" if dry_run == "none" else "created"] * 5)


async def test_general_notes_of_the_report_equal_the_notes_on_standard_error(sluice):
    applied = await sluice("apply", "-f", "-", "--dry-run=client", "-o", "json", stdin=volcano())
    notes = json.loads(applied.stdout)["report"]["notes"]
    assert [f"note: {note}" for note in notes] == applied.stderr.splitlines()
    assert [" ".join(note.split()[:4])[:19] for note in notes] == ["some queues may use", "no LocalQueue point"]


async def test_wide_output_shows_source_and_notes_below_each_object(sluice):
    applied = await sluice("apply", "-f", "-", *CAPACITY, "-n", "n", "-o", "wide", stdin=volcano(reclaimable=False))
    assert applied.exit_code == 0, applied.stderr
    lines = applied.stdout.splitlines()
    place = lines.index("clusterqueue.sluice.dev/a created")
    assert lines[place + 1] == '  translated from standard input: Queue "a"'
    assert lines[place + 2].startswith("  spec.reclaimable: quota that it borrows")
    assert applied.stderr == ""
    named = await sluice("apply", "-f", "-", *CAPACITY, "-n", "n", "-o", "name", stdin=volcano())
    assert named.stdout.splitlines() == [line.split()[0] for line in lines if not line.startswith(" ")]


async def test_report_of_an_apply_refused_midway_lists_only_the_objects_written(sluice):
    parent = "{apiVersion: sluice.dev/v1, kind: Cohort, metadata: {name: %s}, spec: {parentName: %s}}"
    await sluice("apply", "-f", "-", stdin=parent % ("x", "y"))
    refused = await sluice(
        "apply", "-f", "-", *CAPACITY, "-o", "json", stdin=volcano() + "\n---\n" + parent % ("y", "x")
    )
    assert refused.exit_code == 1
    assert refused.stderr.splitlines()[-1].startswith("error: ")
    told = json.loads(refused.stdout)
    written = [line.split()[0] for line in (await sluice("get", "cohorts", "--no-headers")).stdout.splitlines()]
    assert {"ResourceFlavor"} <= {each["kind"] for each in told["report"]["objects"]}
    assert {each["name"] for each in told["report"]["objects"] if each["kind"] == "Cohort"} == {*written} - {"x"}
    assert "ClusterQueue" not in {each["kind"] for each in told["items"]}


OWN = "\n---\n{apiVersion: sluice.dev/v1, kind: ClusterQueue, metadata: {name: a}, spec: {namespaceSelector: {}}}\n"
WRONG = "\n---\n{apiVersion: sluice.dev/v1, kind: ClusterQueue, metadata: {name: b}, spec: {cohort: 3}}\n"
AT = "standard input: document"


@pytest.mark.parametrize(
    ("text", "flags", "messages"),
    [
        (
            volcano(capability={"cpu": -3}),
            CAPACITY,
            ['standard input: Queue "a": spec.capability.cpu: must not be negative'],
        ),
        (
            volcano("b") + "\n---\n" + volcano(weight="x") + WRONG,
            CAPACITY,
            [f"{AT} 3: ClusterQueue", f'{AT} 2: Queue "a": spec.weight: '],
        ),
        (
            volcano(parent="b"),
            CAPACITY,
            ['standard input: Queue "a": spec.parent: queue "b" is not in the files; add it'],
        ),
        (volcano() + OWN, CAPACITY, [f'{AT} 1: Queue "a": becomes ClusterQueue "a", which is defined already;']),
        (
            volcano() + "\n---\n" + kai("b"),
            CAPACITY,
            ["the files contain queues of Volcano and KAI, each of which would get all of --capacity;"],
        ),
        (
            "{partitions: []}",
            CAPACITY,
            ["standard input: contains no queues.yaml (or ConfigMap with it) to import"],
        ),
        (OWN, CAPACITY, ["--capacity is for quota objects of other schedulers, but the files contain none"]),
        (volcano(), ("--capacity", "cpu"), ['--capacity: "cpu" is not RESOURCE=QUANTITY']),
        (volcano(), (*CAPACITY, "--flavor", "A"), ['--flavor: "A" is not a valid ResourceFlavor name']),
        (volcano(), (*CAPACITY, "-n", "Team_A"), ['LocalQueue "a": metadata.namespace: ']),
    ],
)
async def test_invalid_input_is_reported_with_its_location_and_writes_nothing(sluice, text, flags, messages):
    refused = await sluice("apply", "-f", "-", *flags, stdin=text)
    assert refused.exit_code == 2
    for message in messages:
        assert message in refused.stderr
    assert len([line for line in refused.stderr.splitlines() if not line.startswith("note: ")]) == len(messages)
    assert (await sluice("get", "cohorts")).stdout == ""


async def test_delete_by_file_refuses_quota_objects_of_other_schedulers(sluice):
    refused = await sluice("delete", "-f", "-", stdin=volcano())
    assert refused.exit_code == 2
    assert (
        "standard input: is a Queue of another scheduler; name the objects that sluice apply made of it"
        in refused.stderr
    )
