"""`sluice import volcano` and its like: the quota of schedulers that are not of Kueue's family, as queue objects."""
