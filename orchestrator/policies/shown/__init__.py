"""What policies show of each noun, for API, terminal and admin."""
