"""Who may call: API tokens, and the admin of users and groups."""
