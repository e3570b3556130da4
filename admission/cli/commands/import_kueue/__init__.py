"""`sluice import kueue`: import of Kueue's queues, and takeover of the Jobs that Kueue has admitted."""
