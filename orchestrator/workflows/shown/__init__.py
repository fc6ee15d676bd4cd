"""The description of tasks, steps and templates, once: all faces render it."""
