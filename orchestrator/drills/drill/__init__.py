"""`manage.py drill`: break a part of a running installation, and time what follows.

Only the drill's own throwaway workers are affected, and only its own executions run on them: they
have the label `reserved=drill`, which nothing else selects.
"""
