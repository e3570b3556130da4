"""Requests generated from the OpenAPI document, whose responses must match the document.

By default two repeatable requests of each operation are sent; SLUICE_FUZZ=200 sends 200 random requests of each.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from api_client import TOKEN
from api_thread import running
from hypothesis import HealthCheck, Phase, settings
from openapi_schema import schema
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

pytestmark = pytest.mark.costly

REQUESTS = int(os.environ.get("SLUICE_FUZZ", "0"))
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def base_url(filled_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("schemathesis") / "sluice.db"
    shutil.copyfile(filled_database, path)
    with running(f"sqlite:///{path}") as api:
        yield api.url


@schema.parametrize()
@settings(
    max_examples=REQUESTS or 2,  # generating a body takes nine times as long as the request
    derandomize=not REQUESTS,
    database=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)
def test_responses_match_the_openapi_document(case, base_url):
    case.call_and_validate(base_url=base_url, headers={"Authorization": f"Bearer {TOKEN}"}, checks=CHECKS)
