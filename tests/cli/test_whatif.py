"""`sluice whatif`, with docs/tasks/what-if.md: replays what a Sluice has recorded, by a child process of `serve`."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from serve_processes import QUEUES, sluice, waits_recorded

from tests.queue_objects import budget, price_book, text_of

JOBS = 12
BUDGET = text_of(
    price_book("prices", {"resource": "cpu", "perHour": 36000}),
    budget("team", 0, resources=[{"name": "EUR", "priceBook": "prices", "amount": 1_000_000}]),
)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def database_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def recorded(tmp_path: Path, database_url: str) -> AsyncIterator[str]:
    """Address of a Sluice under which more Jobs have run than its quota of 4 CPUs allows at a time."""
    async with waits_recorded(tmp_path, database_url, jobs=JOBS) as url:
        yield url


async def run(url: str, *arguments: str) -> tuple[int | None, str, str]:
    process = await sluice("whatif", "--server", url, *arguments)
    output, errors = await process.communicate()
    return process.returncode, output.decode(), errors.decode()


async def test_replay_agrees_with_the_ledger_and_more_quota_shortens_waits(recorded: str, tmp_path: Path) -> None:
    more = tmp_path / "more.yaml"
    more.write_text(QUEUES.replace("nominalQuota: 4", "nominalQuota: 100"))
    code, output, errors = await run(recorded, "-f", str(more), "--from", "1h", "-o", "json")
    assert code == 0, errors
    answer = json.loads(output)
    happened, replayed, changed = (answer[course]["all"] for course in ("happened", "replayed", "changed"))
    assert (happened["workloads"], happened["waiting"], changed["waiting"]) == (JOBS, 0, 0)
    assert answer["agreement"] == {"started": JOBS, "agree": JOBS, "estimated": 0, "ordered": 0, "misdated": 0}
    assert abs(replayed["waitSeconds"]["mean"] - happened["waitSeconds"]["mean"]) < 2
    assert changed["waitSeconds"]["longest"] < 1 < happened["waitSeconds"]["longest"]
    (use,) = answer["happened"]["resources"]
    assert use["usedSeconds"] <= use["quotaSeconds"]

    proposed = tmp_path / "budget.yaml"
    proposed.write_text(f"{more.read_text()}\n---\n{BUDGET}")
    asked = ("-f", str(proposed), "--from", "1h", "--by", "budget")
    code, output, errors = await run(recorded, *asked, "-o", "csv")
    assert code == 0, errors
    (spent,) = csv.DictReader(io.StringIO(output))
    assert (spent["course"], spent["budget"], spent["charges"], spent["given"]) == ("changed", "team", "EUR", "1000000")
    (use,) = answer["changed"]["resources"]
    assert float(spent["spent"]) == pytest.approx(use["usedSeconds"] * 10, abs=0.1)  # 10 EUR a second of a core
    code, table, errors = await run(recorded, *asked)
    assert code == 0, errors
    assert [*(line.split() for line in table.splitlines() if line.startswith("team"))] == [
        ["team", "EUR", "-", "-", spent["spent"], "of", "1000000"]
    ]

    code, table, errors = await run(recorded, "--quarter", "this", "--by", "user")
    assert code == 0, errors
    assert f"{JOBS} workloads waited" in table
    code, needed, errors = await run(recorded, "--from", "1h", "--more", "cpu", "--until", "p90=1s")
    assert code == 0, errors
    # Eleven of twelve are the first that are nine of ten.
    assert f"With {JOBS - 1} ({JOBS - 5} more) cpu of flavor default in ClusterQueue cq" in needed

    code, _, errors = await run(recorded, "--more", "cq/missing/cpu", "--until", "p90=1s")
    assert (code, errors) == (1, "error: flavor: ClusterQueue cq has no quota of cpu in flavor missing\n")
    for wrong, named in ((["--more", "cpu"], "--until"), (["--until", "p90=1s"], "--more"), (["-o", "svg"], "--more")):
        code, _, errors = await run(recorded, *wrong)
        assert code == 2
        assert named in errors
    code, _, errors = await run(recorded, "--more", "nvidia.com/gpu", "--until", "p90=1s")
    assert (code, errors) == (1, "error: no ClusterQueue has quota of nvidia.com/gpu\n")


async def test_quotas_that_were_tried_are_a_chart_and_csv(recorded: str) -> None:
    asked = ("--from", "1h", "--more", "cq/default/cpu", "--until", "p90=1s", "-o")
    code, output, errors = await run(recorded, *asked, "csv")
    assert code == 0, errors
    tried = [*csv.DictReader(io.StringIO(output))]
    assert tried[0]["quota"] == "4"
    waits = [float(each["p90"]) for each in tried]
    assert waits == sorted(waits, reverse=True)
    code, output, errors = await run(recorded, *asked, "svg")
    assert code == 0, errors
    chart = ET.fromstring(output)
    assert chart.attrib["aria-label"].startswith(f"{JOBS - 1} of cpu of flavor default in ClusterQueue cq: ")
    assert len(chart.findall("{http://www.w3.org/2000/svg}circle")) == len(tried)
