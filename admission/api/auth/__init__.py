"""Authentication and authorization of API requests: tokens, sessions, the front proxy, SubjectAccessReviews."""
