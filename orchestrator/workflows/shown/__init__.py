"""What is said of tasks, steps and templates, once: all faces render it."""
