"""`sluice report`, `export` and `import` as a user runs them."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import pytest
from command_runner import Sluice

from admission.model.manifests import parse_manifest
from admission.model.workload import Admission, PodSet, PodSetAssignment, Workload
from admission.store.audit_log import Author
from admission.store.database.migrations import migrate
from admission.store.errors import StaleEpoch
from admission.store.ledger.measured_usage import Measured
from admission.store.records import Changes, Closed, Opened, State, WorkloadRecord
from admission.store.store import Store
from tests.conftest import Clock
from tests.queue_objects import create_objects, local_queue, manifest, resource_group

NOW = 1_750_000_000.0
LONG = "system:serviceaccount:machine-learning-pipelines:nightly-training-runner"


@pytest.fixture
async def used(store: Store, clock: Clock) -> None:
    epoch = await store.lead("test")
    await create_objects(store, CLUSTER_QUEUE)
    for number, (user, cores) in enumerate([("ada", 2000), (LONG, 8000)]):
        one = Workload(str(number), "team-a", f"job-{number}", "main", 0, NOW, (PodSet("main", 1, {}),), user=user)
        amounts = {"cpu": cores, "memory": 3 * 2**29, "nvidia.com/gpu": 4}
        holds = Admission("cq", (PodSetAssignment("main", dict.fromkeys(amounts, "default"), amounts, 1),))
        record = WorkloadRecord(one, State.FINISHED, NOW, finished_at=NOW + 3600)
        await store.commit(Changes(workloads=(record,), opened=(Opened(one, holds, NOW),)), epoch=epoch)
        await store.commit(Changes(closed=(Closed(str(number), NOW + 3600, "Finished"),)), epoch=epoch)
    clock.now = NOW + 7200


def names(folder: Path, part: str) -> list[str]:
    return [path.name for path in folder.iterdir() if part in path.name]


CLUSTER_QUEUE = manifest("ClusterQueue", "cq", spec={"resourceGroups": [resource_group(default={"cpu": 9})]})


@pytest.mark.usefixtures("used")
async def test_usage_report_table_shortens_long_names_and_has_totals(sluice: Sluice):
    result = await sluice("report", "usage", "--by", "user", "--from", "1d")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "Usage from 2025-06-14T17:06:40Z to 2025-06-15T17:06:40Z, in hours",
        "USER                                    RESOURCE         USED  NOMINAL  BORROWED",
        "ada                                     cpu              2.00     2.00      0.00",
        "ada                                     memory (GiB)     1.50     0.00      1.50",
        "ada                                     nvidia.com/gpu   4.00     0.00      4.00",
        "system:serviceaccount:machine-learnin…  cpu              8.00     7.00      1.00",
        "system:serviceaccount:machine-learnin…  memory (GiB)     1.50     0.00      1.50",
        "system:serviceaccount:machine-learnin…  nvidia.com/gpu   4.00     0.00      4.00",
        "TOTAL                                   cpu             10.00     9.00      1.00",
        "TOTAL                                   memory (GiB)     3.00     0.00      3.00",
        "TOTAL                                   nvidia.com/gpu   8.00     0.00      8.00",
    ]


async def add_price_book(store: Store, name: str, prices: list[dict[str, object]]) -> None:
    spec = {"currency": "EUR", "prices": prices}
    book = {"apiVersion": "sluice.dev/v1", "kind": "PriceBook", "metadata": {"name": name}, "spec": spec}
    await store.queues.create(parse_manifest(book), author=Author("ada"))


async def test_idle_resources_are_those_that_were_measured_and_not_used(sluice: Sluice, used: None, store: Store):
    none = await sluice("report", "idle", "--from", "1d", "--resource", "cpu")
    assert none.stderr == "note: nothing was measured in this time; set usageMetrics, or see the log of Sluice\n"
    hour, seconds = NOW // 3600 * 3600, 1800.0
    rows = [
        Measured(hour, uid, "cq", "main", "default", resource, seconds * amount, seconds * amount * share)
        for uid, resource, amount, share in (
            ("0", "cpu", 2000, 0.5),
            ("0", "nvidia.com/gpu", 4, 0.25),
            ("1", "nvidia.com/gpu", 4, 0),
        )
    ]
    epoch = await store.lead("another")
    for _ in range(2):  # two parts of the hour that it held: 3600 s of 4 GPUs, all of them measured
        await store.measured_usage.add(rows, epoch=epoch)
    with pytest.raises(StaleEpoch):
        await store.measured_usage.add(rows, epoch=epoch - 1)
    table = await sluice("report", "idle", "--from", "1d", "-o", "wide")
    assert [line.split() for line in table.stdout.splitlines()[1:]] == [
        ["USER", "RESOURCE", "HELD", "USED", "IDLE", "UNKNOWN", "%IDLE"],
        ["ada", "cpu", "2.0", "1.0", "1.0", "0.0", "50%"],
        [LONG, "cpu", "8.0", "0.0", "0.0", "8.0"],
        ["ada", "memory", "(GiB)", "1.5", "0.0", "0.0", "1.5"],
        [LONG, "memory", "(GiB)", "1.5", "0.0", "0.0", "1.5"],
        [LONG, "nvidia.com/gpu", "4.0", "0.0", "4.0", "0.0", "100%"],
        ["ada", "nvidia.com/gpu", "4.0", "1.0", "3.0", "0.0", "75%"],
    ]
    asked = ("--by", "workload,flavor", "-n", "team-a", "--resource", "nvidia.com/gpu", "--user", "ada", "-o", "csv")
    lines = [*csv.DictReader(io.StringIO((await sluice("report", "idle", "--from", "1d", *asked)).stdout))]
    shown = [
        line[name] for line in lines for name in ("namespace", "workload", "flavor", "unit", "held", "used", "idle")
    ]
    assert shown == ["team-a", "job-0", "default", "hours", "4.0", "1.0", "3.0"]

    prices = [
        {"resource": "nvidia.com/gpu", "perHour": 100},
        {"flavor": "default", "resource": "nvidia.com/gpu", "perHour": 200, "from": "2025-06-14"},
        {"resource": "nvidia.com/gpu", "perHour": 2.5, "flavor": "default", "from": "2025-06-15"},  # the hour is there
        {"resource": "nvidia.com/gpu", "perHour": 300, "flavor": "default", "from": "2025-06-16"},
    ]
    await add_price_book(store, "prices", prices)
    table = await sluice("report", "idle", "--from", "3d", "-o", "wide")
    assert table.stderr == "note: there is no price for cpu of default\n"
    said, *lines = table.stdout.splitlines()
    assert said.endswith(", in hours; COST in EUR by PriceBook prices")
    lines = [line.split() for line in lines]
    assert (lines[0][-3:], lines[1][-2:]) == (["%IDLE", "COST", "EUR"], ["0.0", "50%"])
    assert lines[-2:] == [
        [LONG, "nvidia.com/gpu", "4.0", "0.0", "4.0", "0.0", "100%", "10.00"],
        ["ada", "nvidia.com/gpu", "4.0", "1.0", "3.0", "0.0", "75%", "7.50"],
    ]
    await add_price_book(store, "others", [{"resource": "cpu", "perHour": 4}])  # now one has to be named
    unpriced = await sluice("report", "idle", "--from", "1d", *asked)
    assert "cost" not in unpriced.stdout.splitlines()[0]
    assert unpriced.stderr == (
        "note: idle hours have no cost, as there are several PriceBooks: give --book, one of others, prices\n"
    )
    lines = [*csv.DictReader(io.StringIO((await sluice("report", "idle", *asked, "--book", "prices")).stdout))]
    assert [(line["cost"], line["currency"]) for line in lines] == [("7.500000", "EUR")]
    wrong = await sluice("report", "idle", "--book", "none")
    assert (wrong.exit_code, 'there is no PriceBook "none"' in wrong.stderr) == (1, True)
    wrong = await sluice("report", "idle", "--by", "label:team")
    assert (wrong.exit_code, "use is not known by label:team" in wrong.stderr) == (1, True)


@pytest.mark.usefixtures("used")
async def test_csv_report_uses_hours_and_has_a_unit_column(sluice: Sluice):
    result = await sluice("report", "usage", "--by", "user,queue", "-o", "csv")
    rows = list(csv.reader(io.StringIO(result.stdout)))
    columns = ["user", "namespace", "queue", "resource", "unit", "used", "nominal", "borrowed", "from", "to", "partial"]
    assert rows[0] == columns
    covered = ["2025-05-16T17:06:40Z", "2025-06-15T17:06:40Z", ""]
    assert rows[4] == [LONG, "team-a", "main", "cpu", "core-hours", "8.0", "7.0", "1.0", *covered]
    assert rows[5] == [LONG, "team-a", "main", "memory", "GiB-hours", "1.5", "0.0", "1.5", *covered]
    assert rows[6] == [LONG, "team-a", "main", "nvidia.com/gpu", "hours", "4.0", "0.0", "4.0", *covered]


@pytest.mark.usefixtures("used")
async def test_report_top_lists_the_largest_workloads_and_sums_the_others(sluice: Sluice):
    result = await sluice("report", "usage", "--by", "workload", "--top", "1", "--resource", "cpu", "--kind", "Job")
    assert result.exit_code == 0, result.output
    assert [line.split() for line in result.stdout.splitlines()[1:]] == [
        ["NAMESPACE", "KIND", "WORKLOAD", "RESOURCE", "USED", "NOMINAL", "BORROWED"],
        ["team-a", "Job", "job-1", "cpu", "8.00", "7.00", "1.00"],
        ["1", "others", "<none>", "<none>", "cpu", "2.00", "2.00", "0.00"],
        ["TOTAL", "cpu", "10.00", "9.00", "1.00"],
    ]
    result = await sluice("report", "usage", "--by", "workload", "--top", "0")
    assert (result.exit_code, "--top" in result.output) == (2, True)


@pytest.mark.usefixtures("used")
async def test_json_report_contains_exact_seconds(sluice: Sluice):
    result = await sluice("report", "usage", "--by", "resource", "-o", "json")
    assert json.loads(result.stdout)["items"][0] == {
        "resource": "cpu",
        "amountSeconds": 36000.0,
        "nominalSeconds": 32400.0,
        "borrowedSeconds": 3600.0,
    }


@pytest.mark.usefixtures("used")
async def test_report_by_month_and_with_filters(sluice: Sluice):
    result = await sluice("report", "usage", "--by", "user", "--period", "month", "--resource", "cpu", "-o", "wide")
    assert result.exit_code == 0, result.output
    assert [line.split() for line in result.stdout.splitlines()[1:]] == [
        ["PERIOD", "USER", "RESOURCE", "USED", "NOMINAL", "BORROWED"],
        ["2025-06", "ada", "cpu", "2.00", "2.00", "0.00"],
        ["2025-06", LONG, "cpu", "8.00", "7.00", "1.00"],
        ["TOTAL", "cpu", "10.00", "9.00", "1.00"],
    ]
    filtered = ("--user", "ada", "--queue", "main", "--flavor", "default", "--clusterqueue", "cq", "-n", "team-a")
    result = await sluice("report", "usage", "--by", "user", *filtered, "-o", "csv")
    assert [row["user"] for row in csv.DictReader(io.StringIO(result.stdout))] == ["ada", "ada", "ada"]
    result = await sluice("report", "usage", "-n", "team-b")
    assert result.stdout.splitlines()[1:] == ["no usage"]
    result = await sluice("report", "usage", "--mine")  # the user of the token has submitted nothing
    assert result.stdout.splitlines()[1:] == ["no usage"]


async def test_report_without_usage_prints_no_usage(sluice: Sluice):
    result = await sluice("report", "usage")
    assert result.stdout.splitlines()[1:] == ["no usage"]


@pytest.mark.usefixtures("used")
async def test_report_by_an_unknown_group_is_an_error(sluice: Sluice):
    result = await sluice("report", "usage", "--by", "team")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) == 1
    assert 'by: usage cannot be grouped by "team"' in result.stderr


@pytest.mark.costly
@pytest.mark.usefixtures("used")
async def test_export_and_import_copy_a_database_only_into_an_empty_database(
    sluice: Sluice, database_url: str, tmp_path: Path
):
    file, copy = tmp_path / "backup.jsonl.gz", f"sqlite:///{tmp_path / 'copy.db'}"
    result = await sluice("export", str(file), "--database-url", database_url)
    assert result.exit_code == 0, result.output
    assert "workloads: 2\n" in result.stderr
    assert names(tmp_path, "backup") == ["backup.jsonl.gz"]

    result = await sluice("import", str(file), "--database-url", copy)

    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines()[-1].startswith("imported ")
    async with Store.open(copy) as store:
        assert [r.workload.name for r in (await store.workloads.list()).workloads] == ["job-0", "job-1"]
    result = await sluice("import", str(file), "--database-url", copy)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (
        1,
        f"error: the database {tmp_path / 'copy.db'} is not empty (there are admissions); use a new one",
    )


@pytest.mark.costly
async def test_failed_import_leaves_the_database_empty(sluice: Sluice, tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'new.db'}"
    await migrate(url)
    whole = tmp_path / "whole.gz"
    assert (await sluice("export", str(whole), "--database-url", url)).exit_code == 0
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(gzip.decompress(whole.read_bytes())[:-1000]))
    for file, sentence in (
        (cut, "error: the export is truncated, nothing was imported"),
        (tmp_path / "absent", f"error: {tmp_path / 'absent'} cannot be read (No such file or directory)"),
    ):
        result = await sluice("import", str(file), "--database-url", url)
        assert result.exit_code == 1
        assert result.stderr.splitlines()[-1].startswith(sentence)
    result = await sluice("import", str(tmp_path), "--database-url", url)
    assert (result.exit_code, f"File '{tmp_path}' is a directory" in result.stderr) == (2, True)
    assert (await sluice("import", str(whole), "--database-url", url)).exit_code == 0


async def test_failed_export_leaves_no_file(sluice: Sluice, tmp_path: Path):
    result = await sluice("export", str(tmp_path / "a.gz"), "--database-url", f"sqlite:///{tmp_path / 'absent.db'}")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    result = await sluice(
        "export", str(tmp_path / "absent" / "a.gz"), "--database-url", f"sqlite:///{tmp_path / 'b.db'}"
    )
    assert "cannot be written (No such file or directory)" in result.stderr
    assert not names(tmp_path, ".gz")


async def test_queue_objects_are_exported_as_manifests(sluice: Sluice, store: Store, tmp_path: Path):
    await create_objects(store, CLUSTER_QUEUE)
    result = await sluice("export", "--as", "kueue", str(tmp_path / "queues.yaml"))
    assert result.exit_code == 0, result.output
    assert "apiVersion: kueue.x-k8s.io/v1beta2" in (tmp_path / "queues.yaml").read_text()


@pytest.mark.parametrize(
    ("flags", "note"),
    [
        (("--user", "adda"), 'user "adda" has no usage in this time; did you mean "ada"?'),
        (("--clusterqueue", "cqs"), 'clusterqueue "cqs" has no usage in this time; did you mean "cq"?'),
        (("--queue", "something-else"), 'queue "something-else" has no usage in this time'),
        (("--user", "ada", "--resource", "gpu"), 'resource "gpu" has no usage in this time'),
        (("-n", "team-b"), 'namespace "team-b" has no usage in this time; did you mean "team-a"?'),
    ],
)
async def test_a_filter_that_selects_nothing_names_a_similar_value(sluice, used, flags, note):
    done = await sluice("report", "usage", *flags)
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "no usage")
    assert [line.removeprefix("note: ").startswith(note) for line in done.stderr.splitlines()] == [True]


@pytest.fixture
async def teams(used: None, store: Store) -> None:
    """A second queue, which nobody used, for the same namespace; the first one has a cost center."""
    main = local_queue("main", "team-a", "cq")
    main["metadata"]["labels"] = {"cost-center": "4711"}
    idle = CLUSTER_QUEUE | {"metadata": {"name": "idle"}}
    await create_objects(store, idle, main, local_queue("spare", "team-a", "idle"))


async def test_report_with_quota_has_a_row_for_each_group_with_all_resources(sluice, teams, clock):
    clock.now += 6 * 3600
    table = await sluice("report", "usage", "--quota", "--by", "clusterqueue", "--from", "1d")
    assert table.exit_code == 0, table.output
    assert [line.split() for line in table.stdout.splitlines()[1:]] == [
        ["CLUSTERQUEUE", "GPU-H", "%QUOTA", "IDLE-H", "CPU-H", "%QUOTA", "IDLE-H", "GIB-H", "%QUOTA", "IDLE-H"],
        ["cq", "8.00", "-", "0.00", "10.00", "13.9", "63.00", "3.00", "-", "0.00"],
        ["idle", "-", "-", "-", "0.00", "0.0", "54.00", "-", "-", "-"],
        ["TOTAL", "8.00", "-", "0.00", "10.00", "7.9", "117.00", "3.00", "-", "0.00"],
    ]
    by_label = await sluice("report", "usage", "--quota", "--by", "label:cost-center", "--resource", "cpu", "-o", "csv")
    rows = [*csv.DictReader(io.StringIO(by_label.stdout))]
    columns = ("label:cost-center", "cpu core-hours", "cpu quota core-hours", "cpu idle core-hours")
    assert [tuple(row[name] for name in columns) for row in rows] == [
        ("", "0.0", "54.0", "54.0"),
        ("4711", "10.0", "72.0", "63.0"),
    ]
    assert {row["cpu percent of quota"] for row in rows} == {"0.0", "13.889"}


async def test_names_in_csv_are_no_formulas(sluice, used, store, clock):
    epoch = await store.lead("test")
    one = Workload("x", "team-a", "job-x", "main", 0, NOW, (PodSet("main", 1, {}),), user="=cmd|'/c calc'!A1")
    holds = Admission("cq", (PodSetAssignment("main", {"cpu": "default"}, {"cpu": 1000}, 1),))
    await store.commit(Changes(opened=(Opened(one, holds, NOW),)), epoch=epoch)
    done = await sluice("report", "usage", "--by", "user", "-o", "csv")
    assert {row["user"] for row in csv.DictReader(io.StringIO(done.stdout))} == {"ada", LONG, "'=cmd|'/c calc'!A1"}


async def test_an_unknown_one_of_several_values_of_a_filter_is_told_about(sluice, used):
    done = await sluice("report", "usage", "--user", "ada", "--user", "bobb", "--user", LONG[:-1])
    assert "no usage" not in done.stdout
    notes = done.stderr.splitlines()
    assert [note.partition(" has")[0] for note in notes] == ['note: user "bobb"', f'note: user "{LONG[:-1]}"']
    assert notes[1].endswith(f'did you mean "{LONG}"?')


async def test_a_month_of_the_calendar_is_reported_as_a_whole(sluice, used, clock):
    clock.now = NOW + 30 * 86400
    whole = await sluice("report", "usage", "--by", "user", "--month", "2025-06", "--resource", "cpu")
    assert (whole.exit_code, whole.stderr) == (0, "")
    assert "ada" in whole.stdout
    before = await sluice("report", "usage", "--month", "2025-05")
    assert before.stdout.splitlines()[-1] == "no usage"
    quarter = await sluice("report", "usage", "--quarter", "2025-Q2", "-o", "json")
    document = json.loads(quarter.stdout)
    assert document["from"] == "2025-04-01T00:00:00Z"
    assert document["items"]


async def test_a_part_of_a_month_is_never_reported_without_a_note(sluice, used, clock):
    part = await sluice("report", "usage", "--period", "month", "--from", "2025-06-03", "-o", "csv")
    assert part.stderr == (
        "note: only a part of 2025-06 is reported: from 2025-06-03T00:00:00Z to 2025-06-15T17:06:40Z\n"
    )
    covered = ("2025-06-03T00:00:00Z", "2025-06-15T17:06:40Z", "true")
    rows = [*csv.DictReader(io.StringIO(part.stdout))]
    assert {(row["from"], row["to"], row["partial"]) for row in rows} == {covered}
    clock.now = NOW + 30 * 86400
    whole = await sluice("report", "usage", "--period", "month", "--from", "2025-06-01", "--to", "2025-07-01")
    assert whole.stderr == ""
    this = await sluice("report", "usage", "--month", "this", TZ="Pacific/Auckland")
    assert "only a part of 2025-07 is reported: from 2025-06-30T12:00:00Z" in this.stderr
    assert this.stdout.startswith("Usage in a part of 2025-07 (Pacific/Auckland), from")


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        (("--month", "october"), 1, "is not a month"),
        (("--month", "2025-06", "--timezone", "Mars"), 1, "is not a time zone"),
        (("--month", "2025-06", "--from", "7d"), 2, "use only one of"),
    ],
)
async def test_wrong_periods_are_errors(sluice, used, flags, code, says):
    done = await sluice("report", "usage", *flags)
    assert (done.exit_code, says in done.stderr) == (code, True), done.stderr


async def test_a_time_zone_of_the_environment_concerns_only_who_names_days(sluice, used):
    posix = "CET-1CEST,M3.5.0,M10.5.0/3"
    assert (await sluice("report", "usage", "--from", "7d", TZ=posix)).exit_code == 0
    assert "is not a time zone" in (await sluice("report", "usage", "--month", "last", TZ=posix)).stderr
