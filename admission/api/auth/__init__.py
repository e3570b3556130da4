"""Authentication and authorization of API requests: tokens, sessions, proxies, SubjectAccessReviews, OpenID Connect."""
