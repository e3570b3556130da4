"""Admission control of the sandbox: webhooks, admission policies and LimitRanges."""
