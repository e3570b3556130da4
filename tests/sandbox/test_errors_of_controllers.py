"""Exceptions of controllers are found by the fuzz and the ways in their own process, by the chaos test in a log."""

from __future__ import annotations

import asyncio
import logging
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from admission.sandbox.background import background
from admission.sandbox.controllers.base import SimulatedController
from admission.sandbox.sandbox import Sandbox
from tests.fuzz.findings import Finding
from tests.fuzz.world import World
from tests.sandbox_errors import logged


class Broken(SimulatedController):
    """Fails once for each of two objects: while one is observed, and while the other is reconciled."""

    plurals = ("namespaces",)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.done = asyncio.Event()
        self._failed = False

    def observe(self, plural: str, change: str, obj: dict[str, Any], before: dict[str, Any] | None) -> None:
        if obj["metadata"]["name"] == "unseen":
            raise ValueError("odd")
        if obj["metadata"]["name"] == "seen":
            self.enqueue("seen")

    async def sync(self, key: str) -> None:
        if self._failed:
            self.done.set()
        else:
            self._failed = True
            raise KeyError("image")


async def test_exceptions_of_controllers_end_a_game_and_are_found_in_the_log(
    tmp_path: Path, controller_errors: list[str]
):
    log = tmp_path / "sandbox.log"
    handler = logging.StreamHandler(log.open("w"))  # in the form in which Python logs without a configuration
    async with Sandbox(controllers=False, speed=100) as sandbox:
        with closing(handler.stream):
            world = World(sandbox, tmp_path, "")
            world.check_alive()
            logging.getLogger("admission.sandbox").addHandler(handler)
            broken = Broken(sandbox.local("admin"), sandbox.clock)
            async with background(broken=broken.run()):
                for name in ("unseen", "seen"):
                    await sandbox.local("admin").create("namespaces", "", {"metadata": {"name": name}})
                await broken.done.wait()
            logging.getLogger("admission.sandbox").removeHandler(handler)
        with pytest.raises(
            Finding, match=r"(?s)a controller of the sandbox fails: Broken could not process .*ValueError"
        ):
            world.check_alive()
        await world.close()
    assert [(each.splitlines()[0][:30], each.splitlines()[-1]) for each in logged(log)] == [
        ("Broken could not process ADDED", "ValueError: odd"),
        ("Broken could not reconcile see", "KeyError: 'image'"),
    ]
    controller_errors.clear()


def test_other_lines_of_the_log_are_no_errors(tmp_path: Path):
    log = tmp_path / "sandbox.log"
    log.write_text("the sandbox runs at https://127.0.0.1:1\nOperator could not write, and will retry: 409\n")
    assert logged(log) == []
