"""The HTTP side of the API: request options, bodies, responses, failures as `Status`, security headers, rate limits."""
