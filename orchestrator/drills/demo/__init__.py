"""`manage.py demo`: Muster on real files, while two of its three workers are lost.

stage     its own directory and environment: short times, no servers
play      the events: submit, kill one worker, stop another, wait for the last end
screen    the display meanwhile, live or as plain lines
account   what must hold in the end, read back from the database
"""
