"""The API of policies."""
