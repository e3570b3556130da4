"""Leadership of a database: fencing by epoch, the leadership lock, the leader's clock, the database's identity."""
