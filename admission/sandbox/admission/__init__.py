"""Admission in the sandbox: webhooks, admission policies, LimitRanges."""
