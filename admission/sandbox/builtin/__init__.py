"""Built-in kinds of the sandbox: their strategies, with defaulting and validation."""
