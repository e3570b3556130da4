"""Signing in to the dashboard at an OpenID Connect issuer: authorization code with PKCE, state and nonce."""
