"""HTTP layer of the API: request options, bodies, responses, errors as `Status`, security headers, rate limits."""
