"""Users, certificates, impersonation, RBAC and access reviews of the sandbox."""
