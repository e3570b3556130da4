"""Who may write decisions: the leadership lock, the leader's clock, the identity of the database."""
