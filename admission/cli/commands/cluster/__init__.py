"""`sluice cluster`: let a cluster join Sluice, and leave it."""

from __future__ import annotations

from admission.cli.commands.cluster.command import cluster

__all__ = ["cluster"]
