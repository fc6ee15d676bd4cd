"""`manage.py demo`: Muster on real files, while two of its three workers are taken away.

stage     a directory and an environment of its own: short times, no servers
play      what happens: submit, kill one worker, stop another, wait for the last end
screen    how it looks meanwhile, live or as plain lines
account   what must hold in the end, read back from the database
"""
