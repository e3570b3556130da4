"""`sluice import volcano`, `yunikorn`, ...: translation of other schedulers' quota to queue objects."""
