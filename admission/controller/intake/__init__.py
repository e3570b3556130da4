"""Informers and background tasks that feed the controller: workloads, LocalQueues, unqueued objects, AppWrappers."""
