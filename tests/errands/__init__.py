"""A small app that proves how an app joins: an errand is one execution of what its kind names.

Named in `INSTALLED_APPS` (see `settings`), and nowhere else.
"""
