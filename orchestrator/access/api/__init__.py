"""Tokens, identities and grants over the API, and the authentication of its callers."""
