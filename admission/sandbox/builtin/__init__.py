"""Built-in kinds of the sandbox: their defaults and rules."""
