"""A bulk order, described once for every face."""
