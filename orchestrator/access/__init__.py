"""Access to the API and the admin: API tokens, users and groups."""
