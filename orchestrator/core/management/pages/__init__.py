"""The generated pages of docs/ that core brings, a file each: see `CoreConfig.reference_pages`."""
