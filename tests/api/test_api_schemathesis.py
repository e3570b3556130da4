"""Requests that nobody thought of, made from the OpenAPI document: each is answered as the document says.

A short, repeatable form runs with all other tests; SLUICE_FUZZ=200 makes so many random requests of each operation.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
import schemathesis
from api_client import TOKEN
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from queue_manifests import admission_check, cluster_queue, cohort, flavor, local_queue, priority_class
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from workload_records import NOW, commit, record

from admission.api.application import create_app, listening
from admission.api.openapi import describe
from admission.api.registry import AUDITS
from admission.model.manifests import parse_manifest
from admission.store.audit import Author
from admission.store.records import State
from admission.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REQUESTS = int(os.environ.get("SLUICE_FUZZ", "0"))
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
OBJECTS = (
    flavor("default", pool="a"),
    cohort("root"),
    admission_check("check"),
    priority_class("high", 7),
    cluster_queue("one", cohortName="root"),
    local_queue("main", "a", "one"),
)
NAMES = sorted({each["metadata"]["name"] for each in OBJECTS} | {"train", "run", "done"})


def described() -> dict[str, Any]:
    """The document without watches: they do not end."""
    document = describe()
    del document["paths"][AUDITS.collection()]  # which needs a leader
    for path in document["paths"].values():
        for operation in path.values():
            if isinstance(operation, dict):
                operation["parameters"] = [each for each in operation["parameters"] if each["name"] != "watch"]
    return document


schema = schemathesis.openapi.from_dict(described(), config=SchemathesisConfig.from_dict({}))


@schema.hook
def before_generate_path_parameters(context: Any, strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Most of what is asked for exists."""
    names = context.operation.path.count("{name}")
    there = {"namespace": st.just("a")} | ({"name": st.sampled_from(NAMES)} if names else {})
    wanted = {name: value for name, value in there.items() if f"{{{name}}}" in context.operation.path}
    known = st.fixed_dictionaries(wanted)
    return st.one_of(known, known, known, strategy)


@contextmanager
def running(url: str) -> Iterator[str]:
    """The API on a thread of its own, for schemathesis' requests are synchronous; the limits see a second pass each."""
    started, address, stop = threading.Event(), [], []

    async def serve() -> None:
        seconds = count()
        async with Store.open(url, clock=lambda: NOW) as store:
            await fill(store)
            app = create_app(store, token=TOKEN, checks={}, clock=lambda: next(seconds), now=lambda: NOW)
            async with listening(app, "127.0.0.1", 0) as base:
                end = asyncio.Event()
                address.append(base)
                stop.append((asyncio.get_running_loop(), end))
                started.set()
                await end.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    started.wait()
    try:
        yield address[0]
    finally:
        loop, end = stop[0]
        loop.call_soon_threadsafe(end.set)
        thread.join()


async def fill(store: Store) -> None:
    for document in OBJECTS:
        await store.queues.create(parse_manifest(document), author=Author("ada"))
    await commit(
        store,
        await store.lead("tests"),
        record("u1", "train", reason="ExceedsQuota", message="x"),
        record("u2", "run", State.ADMITTED, admitted_at=NOW),
        record("u3", "done", State.FINISHED, finished_at=NOW, outcome="Succeeded"),
    )


@pytest.fixture
def base_url(sqlite_template: Path, tmp_path: Path) -> Iterator[str]:
    path = tmp_path / "sluice.db"
    shutil.copyfile(sqlite_template, path)
    with running(f"sqlite:///{path}") as url:
        yield url


@schema.parametrize()
@settings(
    max_examples=REQUESTS or 6,
    derandomize=not REQUESTS,
    database=None,
    deadline=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)
def test_the_document_is_true_of_every_answer(case, base_url):
    case.call_and_validate(base_url=base_url, headers={"Authorization": f"Bearer {TOKEN}"}, checks=CHECKS)
