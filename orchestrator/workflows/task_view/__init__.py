"""What people are shown of tasks: steps and what they wait for, graphs, secrets left out.

The API, the commands and the admin show the same, and read it here. Nothing here changes a row.
"""
