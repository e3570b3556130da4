"""`sluice import kueue` takes over Kueue's running workloads, but refuses while another Sluice uses the database."""

from __future__ import annotations

import re
import signal

import pytest
from kueue_cluster import installed

from tests.cli.serve_processes import serving


@pytest.fixture
def database_kind():
    """PostgreSQL: SQLite allows one replica only."""
    return "postgresql"


@pytest.mark.costly
async def test_kueue_import_is_refused_while_an_elected_leader_runs(world, tmp_path):
    kueue = await installed(world, tmp_path)
    await kueue.queues()
    await kueue.job("run", admitted=True)
    # The Lease lasts longer than the test, so that no other replica is elected.
    lease = ("--lease=default/sluice", "--lease-duration=3600", "--renew-deadline=1800", "--retry-period=1", "--adopt")
    async with serving(tmp_path, world.url, *lease) as leader:
        await leader.until("leading")
        role = await leader.role()
        refused = await kueue.migrate("--yes")
        assert refused.exit_code == 1
        named = r"^error: another Sluice \(\S+, since \d{4}-\d\d-\d\d \S+ UTC\) uses the database .*; stop it first"
        assert re.search(named, refused.output, re.MULTILINE), refused.output
        assert await leader.role() == role
        assert await world.store.queues.list("ClusterQueue") == ()

        await world.record("run", "pending")
        leader.send(signal.SIGKILL)  # it does not release the Lease
        await leader.process.wait()
        await kueue.job("late", admitted=True)
        done = await world.eventually(lambda: _imported(kueue))
        assert "take over  job/team-a/late" in done.output
        assert "same       job/team-a/run" in done.output, "it is on record"
        await world.record("late", "admitted")


async def _imported(kueue):
    """Import from Kueue; None while PostgreSQL has not noticed that the leader is dead."""
    done = await kueue.migrate("--yes")
    return done if done.exit_code == 0 else None
