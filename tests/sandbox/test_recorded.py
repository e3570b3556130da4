"""Replays of cases recorded on a real API server: responses differ exactly in the listed cases."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from admission.sandbox import Sandbox

RECORDED = Path(__file__).parents[2].parent / "shared" / "apiserver"
# Cases that do not pass, or are not replayed; the sandbox's README has the reasons.
DIFFERENT = {
    "core/03-events-k8s-io",
    "core/13-configmaps-and-secrets",
    "customresources/04-patch-and-update",
    "discovery/03-resource-lists",
    "discovery/04-aggregated",
}
NOT_PLAYED = {"core/08-resource-quotas"}
# Groups that are replayed concurrently: a case mostly waits for a webhook's timeout or the end of a watch.
WITHOUT_CONTROLLERS = (
    ("admission",),
    ("watch", "jobs/07*"),
    ("jobs/0[0-689]*", "jobs/[123]*", "pods", "auth", "errors"),
    ("core", "customresources", "discovery"),
)
WITH_CONTROLLERS = (
    ("flows/0[1-4]*",),
    ("flows/0[5-9]*",),
    ("flows/1[0-3]*",),
    ("flows/1[4-9]*",),
    ("core/05*", "admission/13*"),
)

pytestmark = pytest.mark.skipif(not RECORDED.is_dir(), reason="the recorded cases are not beside this repository")


async def play(ca, *, controllers, globs):
    """Replay cases on a new sandbox; return their verdicts by name, with the differences of failed ones.

    The sandbox is not shared, because some cases compare resource versions, which change with every write.
    """
    only = [part for glob in globs for part in ("--only", glob)]
    have = "kcm,compaction" if controllers else "compaction"
    async with Sandbox(controllers=controllers) as sandbox:
        ca.write_text(sandbox.ca_pem)
        command = [sys.executable, str(RECORDED / "replay.py"), "--server", sandbox.url, "--ca", str(ca), "--json"]
        process = await asyncio.create_subprocess_exec(
            *command, "--have", have, "--compact-cmd", "true", *only, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
    return {case["case"]: case for case in json.loads(output)["cases"] if case["verdict"] != "skipped"}


async def play_all(tmp_path, *, controllers, groups):
    playing = (
        play(tmp_path / f"{number}.crt", controllers=controllers, globs=globs) for number, globs in enumerate(groups)
    )
    return {name: case for played in await asyncio.gather(*playing) for name, case in played.items()}


def failed(cases):
    return {name: case["differences"] for name, case in cases.items() if case["verdict"] == "FAIL"}


@pytest.mark.long
async def test_every_case_without_controllers_is_answered_as_recorded(tmp_path):
    cases = await play_all(tmp_path, controllers=False, groups=WITHOUT_CONTROLLERS)

    different = failed(cases)
    assert set(different) == DIFFERENT, {name: different[name] for name in set(different) - DIFFERENT}
    assert len(cases) == 99


@pytest.mark.long
async def test_every_case_with_controllers_is_answered_as_recorded(tmp_path):
    cases = await play_all(tmp_path, controllers=True, groups=WITH_CONTROLLERS)

    assert failed(cases) == {}
    assert len(cases) == 121 - 99 - len(NOT_PLAYED)
