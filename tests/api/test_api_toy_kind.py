"""A new kind of queue object takes names, a model and a descriptor, and an entry for each of them in a list."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


async def run_session(database_url):
    """Results of `toy_kind.session`, a process that registers the kind."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.api.toy_kind.session", database_url), cwd=ROOT,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return json.loads(out)


@pytest.mark.long
async def test_api_command_line_and_client_support_a_kind_by_its_descriptor(database_url):
    tried = await run_session(database_url)
    check_command_line_and_client(tried)
    check_references_and_limits(tried)
    check_discovery_and_openapi(tried)


def check_command_line_and_client(tried):
    assert tried["applied"]["exit_code"] == 0, tried["applied"]
    assert "there is no ClusterQueue team-b; nothing is counted before it is created" in tried["applied"]["stderr"]
    header, *rows = tried["table"]["stdout"].splitlines()
    assert header.split() == ["NAME", "CLUSTERQUEUE", "LEFT", "AGE"]
    assert [row.split()[:3] for row in rows] == [["gpus", "team-a", "100"], ["more", "team-b", "7"]]
    assert json.loads(tried["yaml"]["stdout"])["status"] == {"gpuHoursLeft": 100}
    assert [item["metadata"]["name"] for item in tried["selected"]["body"]["items"]] == ["more"]
    assert tried["client"] == [100, 7]
    assert "allowances" in tried["completed"]
    event = tried["watched"]
    assert (event["type"], event["object"]["spec"]["gpuHours"]) == ("MODIFIED", 90)
    assert len(tried["history"]["body"]["items"]) == 1


def check_references_and_limits(tried):
    assert tried["refused"]["status"] == 409
    assert 'ClusterQueue "team-a" is in use by Allowance gpus' in tried["refused"]["body"]["message"]
    assert tried["invalid"]["exit_code"] != 0
    assert "spec.gpuHours" in tried["invalid"]["stderr"]


def check_discovery_and_openapi(tried):
    (found,) = (item for item in tried["discovery"]["body"]["resources"] if item["name"] == "allowances")
    assert (found["kind"], found["shortNames"], found["namespaced"]) == ("Allowance", ["alw"], False)
    names = {item["name"] for item in tried["discovery"]["body"]["resources"]}
    assert {"allowances/history", "allowances/rollback"} <= names
    schemas = tried["openapi"]["body"]["components"]["schemas"]
    assert schemas["dev.sluice.v1.Allowance"]["properties"]["status"]["allOf"] == [
        {"$ref": "#/components/schemas/dev.sluice.v1.AllowanceStatus"}
    ]
    assert "/apis/sluice.dev/v1/allowances/{name}" in tried["openapi"]["body"]["paths"]
