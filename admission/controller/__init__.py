"""Controller: connects cluster, engine and store, and runs the reconcile loop that every Job passes through.

Nothing is imported here: the process that estimates start times needs the policy settings, but not the controller.
"""
