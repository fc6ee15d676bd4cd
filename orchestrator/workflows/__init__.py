"""Tasks: one run of a template's steps, each step run as executions. Its verbs are in `engine`."""
