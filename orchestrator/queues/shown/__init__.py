"""The nouns of queues as API, terminal and admin show them."""
