"""A file for each page: a function that returns what its template shows."""
