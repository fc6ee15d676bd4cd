"""`manage.py drill`: take something away from a running installation, and time what follows.

Only the drill's own throwaway workers are hurt, and only its own executions run on them: they
carry the label `reserved=drill`, which nothing else selects.
"""
