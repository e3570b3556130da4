"""The commands of `sluice`: one module for each, or for a few that share their code."""
