"""The admission webhooks: AdmissionReview in, AdmissionReview out. They only gate: no quota, no database."""
