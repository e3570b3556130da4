"""One module for each command of `sluice`."""
