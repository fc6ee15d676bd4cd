"""What automation shows of each noun, for API, terminal and admin."""
