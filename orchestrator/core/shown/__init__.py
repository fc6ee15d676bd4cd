"""The description of each noun, once: the API, `--json`, the terminal and the admin render it."""
