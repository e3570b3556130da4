"""Informers and tasks that feed the controller: queued objects, LocalQueues, what is not queued, AppWrappers."""
