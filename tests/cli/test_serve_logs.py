"""Logs of the processes: start and end, text and JSON, levels, and a reader that does not read."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import sys
from typing import Any

import pytest
from serve_processes import serving, sluice

from admission.serving.logs import log_to_stderr


def lines_of(log: bytes) -> list[dict[str, Any]]:
    """The objects of a JSON log, one a line; fails for a line that is not JSON."""
    return [json.loads(line) for line in log.decode().splitlines()]


@pytest.mark.costly
async def test_text_log_contains_start_and_end_and_no_library_lines(sandbox, tmp_path):
    async with serving(tmp_path, f"sqlite:///{tmp_path / 'sluice.db'}", "--log-level=debug") as replica:
        await replica.until_ready()
        replica.send(signal.SIGTERM)
        await replica.process.wait()
    lines = replica.log.decode().splitlines()
    assert " INFO    admission.cli.serve.command: sluice " in lines[0]
    assert lines[-2].endswith(" INFO    admission.cli.serve.signals: shutting down: SIGTERM")
    assert lines[-1].endswith(" INFO    admission.cli.serve.command: ended")
    assert {line.split()[2].partition(".")[0] for line in lines} == {
        "admission"
    }  # even at debug, libraries log nothing


@pytest.mark.costly
async def test_sigusr1_logs_what_tasks_wait_for(sandbox, tmp_path):
    async with serving(tmp_path, f"sqlite:///{tmp_path / 'sluice.db'}") as replica:
        await replica.until_ready()
        while not re.search(r" waits in .*Controller\.decide:.* > Inbox\.wait:", replica.log.decode()):
            replica.send(signal.SIGUSR1)  # repeated, since the controller may just be at work
            await asyncio.sleep(0.1)


@pytest.mark.costly
async def test_log_level_all_includes_libraries(sandbox, tmp_path):
    async with serving(tmp_path, f"sqlite:///{tmp_path / 'sluice.db'}", "--log-level=all") as replica:
        await replica.until_ready()
    assert " DEBUG   aiosqlite: " in replica.log.decode()


@pytest.mark.costly
async def test_json_log_has_one_object_per_line(sandbox, tmp_path):
    async with serving(tmp_path, f"sqlite:///{tmp_path / 'sluice.db'}", "--log-format=json") as replica:
        await replica.until_ready()
        replica.send(signal.SIGINT)
        await replica.process.wait()
    lines = lines_of(replica.log)
    assert lines[0]["message"].startswith("sluice ")
    assert [line["message"] for line in lines[-2:]] == ["shutting down: SIGINT", "ended"]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)


async def test_json_log_contains_the_error_that_ends_the_start(sandbox, tmp_path):
    async with serving(tmp_path, "sqlite:////nowhere/sluice.db", "--log-format=json") as replica:
        assert await replica.process.wait() == 1
    told, ended = lines_of(replica.log)[-2:]
    assert (told["level"], ended["message"]) == ("error", "ended")
    assert "/nowhere" in told["message"]


async def test_standalone_gate_logs_in_the_configured_format(tmp_path):
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


@pytest.mark.long
def test_unread_log_does_not_block_and_notes_missing_lines(monkeypatch):
    log = logging.getLogger("admission.test")
    read, write = os.pipe()
    with open(read, "rb", buffering=0) as reader, open(write, "w", encoding="utf-8") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        with log_to_stderr("info", "json"):
            for number in range(20_000):
                log.info("line %d", number)
            told = b""
            while b"read again" not in told:
                log.info("read again")  # also flushes buffered lines, as far as the pipe has room
                told += reader.read(2**20)
    *messages, last = (line["message"] for line in lines_of(told))
    missing = next(number for number, message in enumerate(messages) if message != f"line {number}")
    assert "lines of the log are missing here, because standard error was not read" in messages[missing]
    assert last == "read again"
