"""What the processes log: their start and end, in text or as JSON, and nothing of what libraries do."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest
from serve_processes import serving, sluice

from admission.sandbox.sandbox import Sandbox
from admission.serving.logs import log_to_stderr

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with Sandbox(speed=60) as sandbox:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        yield sandbox


def lines_of(log: bytes) -> list[dict[str, Any]]:
    """Each line is an object, or this fails."""
    return [json.loads(line) for line in log.decode().splitlines()]


async def test_start_and_end_are_told_in_text(sandbox, tmp_path):
    async with serving(tmp_path, f"sqlite:///{tmp_path / 'sluice.db'}", "--log-level=debug") as replica:
        await replica.until_ready()
        replica.send(signal.SIGTERM)
        await replica.process.wait()
    lines = replica.log.decode().splitlines()
    assert " INFO    admission.cli.serve.command: sluice " in lines[0]
    assert lines[-2].endswith(" INFO    admission.cli.serve.signals: shutting down: SIGTERM")
    assert lines[-1].endswith(" INFO    admission.cli.serve.command: ended")
    assert {line.split()[2].partition(".")[0] for line in lines} == {"admission"}  # at debug, libraries say nothing


async def test_sigusr1_tells_what_each_task_waits_for(sandbox, tmp_path):
    async with serving(tmp_path, f"sqlite:///{tmp_path / 'sluice.db'}") as replica:
        await replica.until_ready()
        while not re.search(r" waits in .*Controller\.decide:.* > Inbox\.wait:", replica.log.decode()):
            replica.send(signal.SIGUSR1)  # again, should it just have had work
            await asyncio.sleep(0.1)


async def test_all_is_what_libraries_say_too(sandbox, tmp_path):
    async with serving(tmp_path, f"sqlite:///{tmp_path / 'sluice.db'}", "--log-level=all") as replica:
        await replica.until_ready()
    assert " DEBUG   aiosqlite: " in replica.log.decode()


async def test_in_json_each_line_is_an_object(sandbox, tmp_path):
    async with serving(tmp_path, f"sqlite:///{tmp_path / 'sluice.db'}", "--log-format=json") as replica:
        await replica.until_ready()
        replica.send(signal.SIGINT)
        await replica.process.wait()
    lines = lines_of(replica.log)
    assert lines[0]["message"].startswith("sluice ")
    assert [line["message"] for line in lines[-2:]] == ["shutting down: SIGINT", "ended"]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)


async def test_in_json_what_ends_it_is_a_line_too(sandbox, tmp_path):
    async with serving(tmp_path, "sqlite:////nowhere/sluice.db", "--log-format=json") as replica:
        assert await replica.process.wait() == 1
    told, ended = lines_of(replica.log)[-2:]
    assert (told["level"], ended["message"]) == ("error", "ended")
    assert "/nowhere" in told["message"]


async def test_the_gate_alone_logs_as_it_is_told(tmp_path):
    process = await sluice(
        "webhook",
        "--username=sluice",
        "--webhook-address=127.0.0.1:0",
        f"--certificate-directory={tmp_path}",
        SLUICE_LOG_FORMAT="json",
    )
    assert process.stderr is not None
    waits = json.loads(await process.stderr.readline())
    assert (waits["level"], waits["logger"]) == ("error", "webhooks.gate")
    assert waits["message"].startswith("cannot serve the webhooks yet")
    process.terminate()
    _, rest = await process.communicate()
    assert [line["message"] for line in lines_of(rest)] == ["shutting down: SIGTERM; answers for another 5 s", "ended"]


def test_a_reader_that_has_stopped_holds_up_nobody_and_is_told_what_is_missing(monkeypatch):
    log = logging.getLogger("admission.test")
    read, write = os.pipe()
    with open(read, "rb", buffering=0) as reader, open(write, "w", encoding="utf-8") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        with log_to_stderr("info", "json"):
            for number in range(20_000):
                log.info("line %d", number)
            told = b""
            while b"read again" not in told:
                log.info("read again")  # what was kept goes with it, as much as there is room for
                told += reader.read(2**20)
    *messages, last = (line["message"] for line in lines_of(told))
    missing = next(number for number, message in enumerate(messages) if message != f"line {number}")
    assert "lines of the log are missing here, because standard error was not read" in messages[missing]
    assert last == "read again"
