"""Plans of Jobs that the demo submits: generated, or read from a trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from admission.cli.demo.plan import GPU, ScenePlan, node_document, queue_documents, three_teams
from admission.cli.demo.scenes import fair_share
from admission.cli.demo.trace import BadTrace, trace_plan
from admission.model.manifests import parse_manifest

HEADER = "name,cpu_milli,memory_mib,num_gpu,qos,creation_time,deletion_time,scheduled_time"


# ---------------------------------------------------------------------- the plan


def test_default_plan_has_1000_jobs_in_unequal_shares_of_three_teams() -> None:
    plan = three_teams()
    assert len(plan.jobs) == 1000
    assert {job.pods for job in plan.jobs} == {10}
    assert all(180 <= job.run_seconds <= 270 for job in plan.jobs)
    assert len({job.run_seconds for job in plan.jobs}) > 100
    assert plan.total("cpu") == 1_000_000
    shares = {team.name: sum(job.team == team.name for job in plan.jobs) for team in plan.teams}
    assert len(set(shares.values())) == 3
    assert plan == three_teams()


@pytest.mark.parametrize("jobs", [1, 2, 7, 999])
def test_plan_has_exactly_the_requested_number_of_jobs(jobs: int) -> None:
    assert len(three_teams(jobs=jobs).jobs) == jobs


def test_every_job_fits_into_the_limit_of_its_team_with_10_nodes() -> None:
    plan = three_teams(nodes=10)
    for job in plan.jobs:
        team = next(team for team in plan.teams if team.name == job.team)
        assert all(job.pods * amount <= plan.limit(team, resource) for resource, amount in job.requests.items())


@pytest.mark.parametrize("plan", [three_teams(), fair_share()])
def test_the_queue_documents_are_valid_manifests(plan: ScenePlan) -> None:
    objects = [parse_manifest(document) for document in queue_documents(plan)]
    kinds = [obj.kind for obj in objects]
    assert kinds.count("ClusterQueue") == kinds.count("LocalQueue") == kinds.count("WorkloadPriorityClass") == 3
    assert kinds.count("Cohort") == kinds.count("ResourceFlavor") == 1


def test_nodes_have_the_labels_and_taints_of_the_flavor() -> None:
    plan = three_teams()
    node = node_document(plan, 0)
    flavor = next(document for document in queue_documents(plan) if document["kind"] == "ResourceFlavor")
    assert flavor["spec"]["nodeLabels"].items() <= node["metadata"]["labels"].items()
    (taint,) = node["spec"]["taints"]
    assert flavor["spec"]["tolerations"] == [taint | {"operator": "Equal"}]


# ---------------------------------------------------------------------- a trace


def trace_file(path: Path, *rows: str) -> Path:
    file = path / "openb_pods.csv"
    file.write_text("\n".join((HEADER, *rows)) + "\n")
    return file


def test_a_trace_becomes_jobs_of_one_pod(tmp_path: Path) -> None:
    file = trace_file(
        tmp_path,
        "p0,12000,16384,1,LS,0,540,0",
        "p1,500,1024,0,BE,1800,99999,1800",
        "p2,8000,1024,8,Guaranteed,9000000,,",
    )
    plan = trace_plan(file)
    assert [(job.name, job.team, job.pods) for job in plan.jobs] == [
        ("p0", "latency-sensitive", 1),
        ("p1", "best-effort", 1),
        ("p2", "guaranteed", 1),
    ]
    assert plan.jobs[0].requests == {"cpu": 12_000, "memory": 16384 * 2**20, GPU: 1}
    # p1 is cut to an hour; p2 never started, and gets the median of the others, also cut to an hour.
    assert [job.run_seconds for job in plan.jobs] == [540, 3600, 3600]
    # The pause of months counts as one hour: 1800 s and 5400 s, scaled to 0.03 s for each pod.
    assert [job.arrival for job in plan.jobs] == pytest.approx([0, 0.1 / 3, 0.1])


def test_trace_is_read_only_up_to_the_requested_number_of_jobs(tmp_path: Path) -> None:
    rows = [f"p{number},1000,1024,0,LS,{number},9,5" for number in range(5)]
    assert len(trace_plan(trace_file(tmp_path, *rows, "broken"), jobs=5).jobs) == 5


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ((), "has a header, but no pods"),
        (("p0,many,1024,0,LS,0,9,5",), "line 2 .* 'many' as cpu_milli, which is not a number"),
        (
            ("p0,1000,1024,0,LS,0,9,5", "p1,-1,1024,0,LS,0,9,5"),
            "line 3 .* -1 as cpu_milli, which is not a valid amount",
        ),
        (("p0,nan,1024,0,LS,0,9,5",), "nan as cpu_milli, which is not a valid amount"),
        (("p0,1000,1024,0,XX,0,9,5",), "unknown qos 'XX'; expected LS, Burstable, Guaranteed, BE"),
        (("p0,1000",), "line 2 .* '' as creation_time, which is not a number"),
        (("p0,1000000,1024,0,LS,0,9,5",), "line 2 .* requests more cpu than any node"),
    ],
)
def test_invalid_trace_is_refused_with_the_line(tmp_path: Path, rows: tuple[str, ...], message: str) -> None:
    with pytest.raises(BadTrace, match=message):
        trace_plan(trace_file(tmp_path, *rows))


def test_missing_unrelated_or_binary_trace_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadTrace, match="cannot be read: No such file"):
        trace_plan(tmp_path / "missing.csv")
    (tmp_path / "nodes.csv").write_text("sn,cpu_milli\nn0,1\n")
    with pytest.raises(BadTrace, match="its first line has no column name, memory_mib"):
        trace_plan(tmp_path / "nodes.csv")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(BadTrace, match="is not a CSV file"):
        trace_plan(tmp_path / "binary")
