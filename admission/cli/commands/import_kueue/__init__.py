"""`sluice import kueue`: the queues of a cluster that runs Kueue, and the Jobs that it lets run."""
