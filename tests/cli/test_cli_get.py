"""`sluice get` and `sluice delete`: exact tables, documents, and messages for empty results and errors."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio
import yaml
from command_runner import TOKEN, Sluice
from displayed_objects import POD_SETS, create_queues, create_workloads

from admission.api.application import create_app, listening
from admission.api.documents.representation import columns_of
from admission.api.registry import RESOURCES
from admission.cli.arguments.objects import field_value
from admission.cli.output.tables import TextTable, age
from admission.client import Sluice as Client
from admission.model.base import ObjectMeta
from admission.model.queues import Cohort
from admission.model.workload import Workload
from admission.store.audit_log import Author
from admission.store.records import Changes, State, WorkloadRecord
from admission.store.store import Store
from tests.conftest import Clock
from tests.sqlite_store import sqlite_store

read_only = pytest.mark.asyncio(loop_scope="module")
"""Mark of tests that share objects with others, by `empty` or `filled`: their commands write nothing."""


@asynccontextmanager
async def serving(store: Store) -> AsyncIterator[Sluice]:
    app = create_app(store, token=TOKEN, checks={"database": store.health})
    async with listening(app, "127.0.0.1", 0) as url:
        yield Sluice({"SLUICE_SERVER": url, "SLUICE_ADMIN_TOKEN": TOKEN})


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def empty(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Sluice]:
    folder = tmp_path_factory.mktemp("empty")
    async with sqlite_store(sqlite_template, folder, Clock()) as store, serving(store) as sluice:
        yield sluice


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def filled(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Sluice]:
    clock = Clock()
    async with sqlite_store(sqlite_template, tmp_path_factory.mktemp("filled"), clock) as store:
        await create_queues(store, clock)
        await create_workloads(store)
        async with serving(store) as sluice:
            yield sluice


@pytest.fixture
async def queues(store: Store, clock: Clock) -> None:
    await create_queues(store, clock)


@pytest.fixture
async def workloads(store: Store, queues: None) -> None:
    await create_workloads(store)


@read_only
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["clusterqueues"],
            """
NAME    COHORT    PENDING  ADMITTED  ACTIVE  AGE
team-a  research  1        1         True    3d
team-b  <none>    0        0         False   3d
""",
        ),
        (
            ["cq", "-o", "wide"],
            """
NAME    COHORT    STRATEGY        PENDING  ADMITTED  ACTIVE  AGE
team-a  research  BestEffortFIFO  1        1         True    3d
team-b  <none>    BestEffortFIFO  0        0         False   3d
""",
        ),
        (["co"], "\nNAME      PARENT  AGE\nresearch  <none>  3d\n"),
        (["rf", "-o", "wide"], "\nNAME     NODE-LABELS  AGE\ndefault  pool=a100    3d\n"),
        (["WorkloadPriorityClass"], "\nNAME  VALUE  AGE\nhigh  1000   3d\n"),
        (
            ["lq", "-A"],
            """
NAMESPACE  NAME  CLUSTERQUEUE  PENDING  ADMITTED  AGE
team-a     main  team-a        1        1         3d
team-b     main  team-b        0        0         3d
""",
        ),
        (["lq", "-n", "team-b", "--no-headers"], "\nmain  team-b  0  0  3d\n"),
        (
            ["co,lq,clusterqueues", "-A"],
            """
NAME         PARENT  AGE
co/research  <none>  3d

NAMESPACE  NAME     CLUSTERQUEUE  PENDING  ADMITTED  AGE
team-a     lq/main  team-a        1        1         3d
team-b     lq/main  team-b        0        0         3d

NAME       COHORT    PENDING  ADMITTED  ACTIVE  AGE
cq/team-a  research  1        1         True    3d
cq/team-b  <none>    0        0         False   3d
""",
        ),
        (
            ["cq", "--sort-by", ".status.pendingWorkloads", "--no-headers"],
            "\nteam-b  <none>    0  0  False  3d\nteam-a  research  1  1  True   3d\n",
        ),
        (
            ["workloads", "-n", "team-a"],
            """
NAME             QUEUE  STATE     WAITS-FOR        ELAPSED  STARTS  PODS  AGE
job-runs-1bf41   main   admitted  <none>           5h       <none>  2     5h1m
job-waits-f6fc4  main   pending   WaitingForQuota  <none>   <none>  3     5h1m
""",
        ),
        (
            ["wl", "-A", "-o", "wide"],
            """
NAMESPACE  NAME             QUEUE  RESERVED-IN  STATE     EXIT    FLAVOR   CLUSTER  PODS  REQUESTS          PRIORITY  USER     WAITED  WAITS-FOR        ELAPSED  STARTS  AGE
team-a     job-runs-1bf41   main   team-a       admitted  <none>  default  <none>   2     cpu=2             100       alice    60s     <none>           5h       <none>  5h1m
team-a     job-waits-f6fc4  main   <none>       pending   <none>  <none>   <none>   3     cpu=5,memory=2Gi  100       bob,a=b  5h1m    WaitingForQuota  <none>   <none>  5h1m
""",  # noqa: E501
        ),
        (
            ["wl", "-n", "team-a", "--all", "--no-headers"],
            """
job-runs-1bf41   main  admitted   <none>           5h      <none>  2  5h1m
job-waits-f6fc4  main  pending    WaitingForQuota  <none>  <none>  3  5h1m
job-ended-9e251  main  Succeeded  <none>           60m     <none>  2  5h1m
""",
        ),
        (
            ["wl", "-n", "team-a", "--field-selector", "status.state=finished", "--no-headers"],
            "\njob-ended-9e251  main  Succeeded  <none>  60m  <none>  2  5h1m\n",
        ),
        (
            ["wl/ended", "-n", "team-a", "--no-headers"],
            "\njob-ended-9e251  main  Succeeded  <none>  60m  <none>  2  5h1m\n",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
async def test_get_prints_the_expected_table(filled, arguments, expected):
    done = await filled("get", *arguments)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == expected.lstrip("\n")
    if "wide" not in arguments:
        assert max(map(len, done.stdout.splitlines())) <= 120


@read_only
async def test_get_finds_objects_by_name_and_workloads_by_job_name(filled):
    for arguments in (["cq", "team-b"], ["cq/team-b"], ["clusterqueue/team-b"]):
        done = await filled("get", *arguments, "--no-headers")
        assert done.stdout.split()[0] == "team-b"
    several = await filled("get", "cq", "team-b", "team-a", "-o", "name")
    assert several.stdout == "clusterqueue.sluice.dev/team-b\nclusterqueue.sluice.dev/team-a\n"
    by_job = await filled("get", "wl/waits", "-n", "team-a", "-o", "json")
    assert json.loads(by_job.stdout)["metadata"]["uid"] == "1"


@read_only
async def test_get_documents_omit_finished_workloads_unless_all(filled):
    assert (await filled("get", "wl", "-A", "-o", "name")).stdout.splitlines() == [
        "workload.sluice.dev/job-runs-1bf41", "workload.sluice.dev/job-waits-f6fc4",
    ]  # fmt: skip
    both = json.loads((await filled("get", "lq,wl", "-n", "team-a", "-o", "json", "--all")).stdout)
    assert [item["metadata"]["name"] for item in both["items"]] == [
        "main", "job-ended-9e251", "job-runs-1bf41", "job-waits-f6fc4",
    ]  # fmt: skip


async def test_get_mine_lists_only_workloads_of_the_requesting_user(sluice, store, workloads):
    nothing = await sluice("get", "wl", "-A", "--mine")
    assert (nothing.exit_code, nothing.stdout) == (0, "")
    assert nothing.stderr == (
        "no unfinished workloads of user sluice:admin found; use --all to include finished ones\n"
    )
    workload = Workload("4", "team-a", "mine", "main", 0, 1.0, POD_SETS, user="sluice:admin")
    record = WorkloadRecord(workload, State.PENDING, queued_at=1.0, cluster_queue="team-a")
    await store.commit(Changes(workloads=(record,)), epoch=await store.lead("tests"))
    mine = await sluice("get", "cq,wl", "-A", "--mine", "-o", "name", "--field-selector", "metadata.namespace=team-a")
    assert mine.exit_code == 0, mine.stderr
    (name,) = mine.stdout.splitlines()
    assert name.startswith("workload.sluice.dev/job-mine-")
    # User names from certificates may contain commas and equals signs.
    theirs = await sluice("get", "wl", "-A", "-o", "name", "--field-selector", f"spec.user={field_value('bob,a=b')}")
    assert theirs.stdout == "workload.sluice.dev/job-waits-f6fc4\n"


@pytest.mark.parametrize(
    ("outcome", "shown"), [("Failed", "Failed"), ("Deleted", "Cancelled"), ("Evicted", "Evicted"), ("", "finished")]
)
async def test_the_state_of_a_finished_workload_is_its_outcome(sluice, store, workloads, outcome, shown):
    workload = Workload("4", "team-a", "mine", "main", 0, 1.0, POD_SETS)
    record = WorkloadRecord(workload, State.FINISHED, queued_at=1.0, finished_at=2.0, outcome=outcome)
    await store.commit(Changes(workloads=(record,)), epoch=await store.lead("tests"))
    row = (await sluice("get", "wl/mine", "-n", "team-a", "--no-headers")).stdout.split()
    assert row[2:5] == [shown, "<none>", "<none>"], "it was never admitted"


async def test_topologies_are_listed_with_their_levels_among_other_types(sluice):
    levels = "[{nodeLabel: block}, {nodeLabel: rack}]"
    text = f"{{apiVersion: sluice.dev/v1, kind: Topology, metadata: {{name: dc}}, spec: {{levels: {levels}}}}}"
    flavor = "---\n{apiVersion: sluice.dev/v1, kind: ResourceFlavor, metadata: {name: a}}"
    assert (await sluice("apply", "-f", "-", stdin=f"{text}\n{flavor}")).exit_code == 0
    listed = (await sluice("get", "topologies,rf", "--no-headers")).stdout.splitlines()
    assert listed[0].split()[:2] == ["topo/dc", "block,rack"]
    assert "nodeLabel: rack" in (await sluice("describe", "topo/dc")).stdout


@read_only
async def test_get_of_several_types_lists_objects_and_names_empty_types(filled):
    assert (await filled("get", "cq,wpc", "-o", "name")).stdout.splitlines() == [
        "clusterqueue.sluice.dev/team-a", "clusterqueue.sluice.dev/team-b", "workloadpriorityclass.sluice.dev/high",
    ]  # fmt: skip
    done = await filled("get", "ac,co,co", "--no-headers")
    assert (done.stdout, done.stderr) == ("co/research  <none>  3d\n", "no admissionchecks found\n")
    named = await filled("get", "cq/team-a", "co/research", "lq/main", "-n", "team-b", "--no-headers")
    assert [line.split()[0] for line in named.stdout.split("\n") if line] == ["cq/team-a", "co/research", "lq/main"]


async def test_sort_by_orders_quantities_by_value_and_names_naturally(sluice):
    for name, weight in (("c-10", "1500m"), ("c-9", "2"), ("c-b", None), ("c-1", "1")):
        spec = {} if weight is None else {"fairSharing": {"weight": weight}}
        manifest = {"apiVersion": "sluice.dev/v1", "kind": "Cohort", "metadata": {"name": name}, "spec": spec}
        assert (await sluice("apply", "-f", "-", stdin=json.dumps(manifest))).exit_code == 0

    async def order(path: str, *more: str) -> list[str]:
        done = await sluice("get", "cohorts", "--sort-by", path, *more)
        assert done.exit_code == 0, done.stderr
        return done.stdout.replace("cohort.sluice.dev/", "").split()

    assert await order(".metadata.name", "-o", "name") == ["c-1", "c-9", "c-10", "c-b"]
    assert await order("{.spec.fairSharing.weight}", "-o", "name") == ["c-b", "c-1", "c-10", "c-9"]
    assert (await order(".spec.fairSharing.weight", "--no-headers"))[::3] == ["c-b", "c-1", "c-10", "c-9"]
    nothing = await sluice("get", "cohorts", "--sort-by", ".spec.nothing")
    assert nothing.exit_code == 1
    assert nothing.stderr.startswith("error: --sort-by: none of the objects has a field .spec.nothing")


async def test_get_prints_json_and_yaml_documents(sluice, queues):
    one = yaml.safe_load((await sluice("get", "cq/team-a", "-o", "yaml")).stdout)
    assert (one["kind"], one["metadata"]["name"]) == ("ClusterQueue", "team-a")
    assert one["status"]["pendingWorkloads"] == 0
    several = json.loads((await sluice("get", "cq", "-o", "json")).stdout)
    assert (several["apiVersion"], several["kind"]) == ("v1", "List")
    assert several["items"][0] == one


@pytest.mark.costly
async def test_get_lists_more_objects_than_one_page(sluice, store):
    names = [f"c{number:04}" for number in range(501)]
    for name in names:
        await store.queues.create(Cohort(metadata=ObjectMeta(name=name)), author=Author("tests"))
    listed = (await sluice("get", "cohorts", "-o", "name")).stdout.splitlines()
    assert listed == [f"cohort.sluice.dev/{name}" for name in names]


@read_only
async def test_get_of_nothing_succeeds_with_a_message(empty):
    everywhere = "-A for all namespaces\n"
    done = await empty("get", "workloads", "-n", "team-x")
    assert (done.exit_code, done.stdout, done.stderr) == (
        0,
        "",
        f"no unfinished workloads found in namespace team-x; use --all to include finished ones, {everywhere}",
    )
    done = await empty("get", "workloads", "--all", "-n", "team-x")
    assert (done.exit_code, done.stderr) == (0, f"no workloads found in namespace team-x; use {everywhere}")
    done = await empty("get", "cq", "-o", "yaml")
    assert yaml.safe_load(done.stdout)["items"] == []


@read_only
@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["get", "clusterqueus"], 2, 'unknown resource type "clusterqueus"; did you mean "clusterqueues"?'),
        (["get", "xyz"], 2, "available types: clusterqueues, cohorts"),
        (["get", "cq/a", "b"], 2, "use TYPE NAME... or TYPE/NAME"),
        (["get", "cq/"], 2, '"cq/" has no name; use cq/NAME'),
        (["get", "lq", "main", "-A"], 2, "a NAME cannot be used with -A"),
        (["get", "cq", "-o", "xml"], 2, "'xml' is not one of"),
        (["get", "cq,xyz"], 2, 'unknown resource type "xyz"'),
        (["get", "cq", "--mine"], 2, "--all, --mine and --cluster can only be used to list workloads"),
        (["get", "wl", "train", "--all"], 2, "--all, --mine and --cluster can only be used to list workloads"),
        (["get", "cq,lq", "-w"], 2, "--watch supports one object, or one type"),
        (["get", "cq", "-w", "--sort-by", ".metadata.name"], 2, "--watch cannot be used with --sort-by"),
        (["get", "cq", "--sort-by", ".metadata[?"], 2, "invalid JSONPath template"),
        (["get", "cq", "--sort-by", "{.kind}{.kind}"], 2, "it is not a single path"),
        (["get"], 2, "Missing argument"),
        (["get", "cq", "nothing"], 1, 'error: clusterqueues.sluice.dev "nothing" not found'),
        (["get", "wl", "nothing"], 1, 'error: workloads.sluice.dev "nothing" not found'),
        (["why", "nothing"], 1, 'workloads.sluice.dev "nothing" not found in namespace "default"; check the'),
        (["get", "cq", "../cohorts"], 2, "use TYPE NAME... or TYPE/NAME"),
        (["get", "cq", "-o", "jsonpath={.metadata"], 2, "invalid JSONPath template"),
        (["delete", "wl/train"], 2, "workloads cannot be deleted; delete the Job instead"),
        (["delete", "cq"], 2, "no clusterqueues are selected"),
        (["delete", "cq", "nothing"], 1, 'error: clusterqueues.sluice.dev "nothing" not found'),
        (["get", "cq", "--token-file", "/nonexistent"], 1, "error: the token file /nonexistent cannot be read"),
        (["get", "cq", "--server", "localhost:8080"], 1, "is not a URL of Sluice"),
        (["get", "cq", "--server", "ftp://localhost"], 1, "is not a URL of Sluice"),
        (["get", "cq", "--server", "http://[::"], 1, "is not a URL of Sluice"),
        (["get", "cq", "--server", "http://sluice.invalid"], 1, "cannot be reached"),
    ],
)
async def test_wrong_arguments_are_reported_with_one_error_line(empty, arguments, code, says):
    done = await empty(*arguments)
    assert (done.exit_code, done.stdout) == (code, "")
    assert says in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.lower().startswith("error:")]) == 1


@read_only
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["get", "cq/taem-a"], 'did you mean "team-a"?'),
        (["get", "cq", "taem-a", "-o", "yaml"], 'did you mean "team-a"?'),
        (["describe", "cohort/reseach"], 'did you mean "research"?'),
        (["delete", "wpc/higj"], 'did you mean "high"?'),
        (["history", "cq/taem-a"], 'did you mean "team-a"?'),
        (["get", "lq/main", "-n", "team"], 'there is one in namespace "team-b": add -n team-b'),
        (["get", "lq/mian", "-n", "team-b"], 'did you mean "main" in namespace "team-b"?'),
        (["why", "wiats", "-n", "team-a"], 'did you mean "waits"?'),
        (["hold", "job/wiats", "-n", "team-a"], 'did you mean "waits"?'),
        (["why", "pod/waits", "-n", "team-a"], "the one there is of kind Job: use job/waits"),
        (["hold", "pod/waits", "-n", "team-a"], "the one there is of kind Job: use job/waits"),
        (["prioritize", "po/waits", "--top", "-n", "team-a"], "the one there is of kind Job: use job/waits"),
        (["history", "pod/job-waits-f6fc4", "-n", "team-a"], "the one there is of kind Job: use job/waits"),
        (["position", "pod/wiats", "-n", "team-a"], 'did you mean "waits"?'),
    ],
)
async def test_not_found_error_suggests_a_similar_name_kind_or_namespace(filled, arguments, says):
    done = await filled(*arguments)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.endswith(f"; {says}\n")


@read_only
async def test_not_found_error_without_a_similar_name_suggests_nothing(filled):
    for arguments in (["get", "cq/zzz"], ["get", "lq/zzz", "-n", "team-a"], ["describe", "wl/zzz", "-n", "team-a"]):
        done = await filled(*arguments)
        assert done.exit_code == 1
        assert "did you mean" not in done.stderr


async def test_deactivate_and_activate_are_other_names_of_hold_and_release(sluice, workloads):
    for command, outcome, held in (("deactivate", "put on hold", "true"), ("activate", "released", "false")):
        done = await sluice(command, "job/waits", "-n", "team-a", "--reason", "superseded")
        assert done.stdout == f"workload.sluice.dev/job-waits-f6fc4 {outcome}\n"
        shown = await sluice("get", "wl/waits", "-n", "team-a", "-o", "jsonpath={.spec.hold}")
        assert shown.stdout == held


async def test_release_queues_a_deactivated_workload_again(sluice, workloads):
    async with Client(sluice.environment["SLUICE_SERVER"], token=TOKEN) as api:
        await api.workloads.deactivate("waits", namespace="team-a")
    assert (await sluice("release", "waits", "-n", "team-a")).stdout.endswith(" released\n")
    shown = await sluice("get", "wl/waits", "-n", "team-a", "-o", "jsonpath={.spec.active}")
    assert shown.stdout == "true"


async def test_stop_and_resume_say_if_there_is_nothing_to_do(sluice, queues):
    for command, outcome in (("resume", "is open already"), ("stop", "stopped"), ("stop", "is stopped already")):
        done = await sluice(command, "cq/team-a")
        assert (done.exit_code, done.stdout) == (0, f"clusterqueue.sluice.dev/team-a {outcome}\n")
    drained = await sluice("stop", "cq/team-a", "--drain")
    assert drained.stdout == "clusterqueue.sluice.dev/team-a stopped\n"


@read_only
async def test_hold_of_a_finished_workload_is_an_error(filled):
    done = await filled("hold", "job/ended", "-n", "team-a")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "error: ended has finished and cannot be changed any more\n"


async def test_delete_refuses_objects_in_use_and_deletes_others(sluice, queues):
    refused = await sluice("delete", "cq/team-b")
    assert refused.exit_code == 1
    assert "in use by LocalQueue team-b/main" in refused.stderr
    assert (await sluice("delete", "lq", "main", "-n", "team-b")).stdout == "localqueue.sluice.dev/main deleted\n"
    assert (await sluice("delete", "cq/team-b")).stdout == "clusterqueue.sluice.dev/team-b deleted\n"
    assert (await sluice("get", "cq", "-o", "name")).stdout == "clusterqueue.sluice.dev/team-a\n"


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0s"), (119, "119s"), (120, "2m"), (330, "5m30s"), (600, "10m"), (10_799, "179m"), (10_800, "3h"),
        (12_000, "3h20m"), (8 * 3600, "8h"), (47 * 3600, "47h"), (48 * 3600, "2d"), (52 * 3600, "2d4h"),
        (8 * 86400, "8d"), (729 * 86400, "729d"), (800 * 86400, "2y70d"), (-5, "0s"),
    ],
)  # fmt: skip
def test_ages_are_formatted_as_by_kubectl(seconds, expected):
    now = datetime(2026, 1, 2, tzinfo=UTC)
    created = (now - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert age(created, now) == expected


@pytest.mark.parametrize("kind", [resource.kind for resource in RESOURCES])
def test_table_with_usual_names_fits_80_columns(kind):
    columns = [column.definition() for column in columns_of(kind)]
    cells = {"integer": "12345", "date": "179m"}
    names = {"Name": "job-train-resnet-a1b2c", "Age": "5h30m", "Admitted": "True", "Finished": "True"}
    row = [names.get(column["name"], cells.get(column["type"], "gpu-a")) for column in columns]
    table = TextTable(namespaces=kind in ("Workload", "LocalQueue"))
    lines = table.lines(columns, [{"metadata": {"namespace": "team-a"}, "cells": row}])
    assert max(map(len, lines)) <= 80
