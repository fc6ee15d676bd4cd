"""Tasks: runs of templates, whose steps run as executions. The verbs are in `engine`."""
