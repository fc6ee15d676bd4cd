"""The nouns of policies as API, terminal and admin show them."""
