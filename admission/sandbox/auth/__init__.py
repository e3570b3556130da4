"""Authentication and authorization of the sandbox: users, certificates, impersonation, RBAC and access reviews."""
