"""HTTP interface of the sandbox: verbs, lists, watches, tables, discovery, pod logs and fault injection."""
