"""The nouns of automation as API, terminal and admin show them."""
