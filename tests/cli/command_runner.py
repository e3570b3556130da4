"""The commands as a user runs them, for the tests in this folder."""

from __future__ import annotations

import asyncio
import functools
from dataclasses import dataclass, field

import click
from click.testing import CliRunner, Result

from admission.cli.main import main

TOKEN = "a-token"


@dataclass(frozen=True)
class Sluice:
    """`await sluice("get", "cq")` runs the command in a thread, while the API answers in this one."""

    environment: dict[str, str] = field(default_factory=dict)

    async def __call__(self, *arguments: str, stdin: str = "", **environment: str) -> Result:
        return await asyncio.to_thread(self.run, *arguments, stdin=stdin, **environment)

    def run(self, *arguments: str, stdin: str = "", **environment: str) -> Result:
        runner = CliRunner(env=self.environment | environment, catch_exceptions=False)
        return runner.invoke(main, arguments, input=stdin)

    async def completing(self, command: click.Command, **environment: str) -> str:
        """Output of a command for the completion of a shell."""
        invoke = functools.partial(
            CliRunner(env=self.environment | environment).invoke,
            command,
            prog_name="sluice",
            complete_var="_SLUICE_COMPLETE",
        )
        return (await asyncio.to_thread(invoke)).stdout
