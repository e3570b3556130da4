"""Execution of commands, which are killed if the waiting test is cancelled."""

from __future__ import annotations

import asyncio


async def output_of(*command: str) -> str:
    """Run a command and return its stdout. Raises AssertionError with its whole output if it fails."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        output, errors = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.communicate()
        raise
    assert process.returncode == 0, (output + errors).decode()
    return output.decode()
