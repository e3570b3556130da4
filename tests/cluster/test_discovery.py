"""Discovery of served kinds against a scripted API server."""

from __future__ import annotations

import pytest
from custom_kinds import JOBSET, KINDS
from scripted_server import failure, reply

from admission.cluster.errors import BadAnswer
from admission.controller.intake.served import served_versions

JOBSETS = KINDS.get(*JOBSET)
GROUPS = reply({"groups": [{"name": JOBSETS.group, "versions": [{"version": "v1alpha2"}]}]})


@pytest.mark.parametrize(
    ("resources", "served"),
    [
        (reply({"resources": [{"name": "jobsets"}, {"name": "jobsets/status"}]}), {JOBSETS: "v1alpha2"}),
        (reply({"resources": []}), {}),
        (failure(404), {}),
    ],
)
async def test_kind_is_served_in_an_offered_version_that_has_its_resource(server, client, resources, served):
    server.script = [GROUPS, resources]
    assert await served_versions(client, [JOBSETS]) == served


@pytest.mark.parametrize(
    "script",
    [
        [reply({})],
        [reply({"groups": [{"versions": []}]})],
        [reply({"groups": [{"name": "batch", "versions": None}]})],
        [reply({"groups": [None]})],
        [GROUPS, reply({"resources": [{}]})],
        [GROUPS, reply({"resources": [None]})],
    ],
)
async def test_answer_that_is_no_discovery_document_is_an_error_of_the_cluster(server, client, script):
    server.script = script
    with pytest.raises(BadAnswer):
        await served_versions(client, [JOBSETS])
