"""Commands that run to their end, or are killed with the test that waits for them."""

from __future__ import annotations

import asyncio


async def output_of(*command: str) -> str:
    """What it wrote to stdout; AssertionError with all that it wrote if it failed."""
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
