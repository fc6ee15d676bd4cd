"""Muster's systems, one Django app each.

    core        executions on a fleet of workers, and the frame of all faces
    workflows   tasks: templates, steps, and how they are run as executions
    access      who may call: API tokens, and the admin of users
    drills      everything on one machine: `up`, `demo`, `drill`
    sqlitemq    the embedded broker, a kombu transport; it imports nothing of ours

Imports go down only: drills -> access, workflows -> core -> sqlitemq. See docs/adr/0027.
"""
