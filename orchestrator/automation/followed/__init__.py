"""The histories that triggers follow: which of their rows are events, and what these say."""
