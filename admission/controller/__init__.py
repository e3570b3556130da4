"""Joins cluster, engine and store: the loop that every Job passes through.

Nothing is imported here: the process that estimates starts needs the settings of policies, not the controller.
"""
