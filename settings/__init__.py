"""What varies between installations: Django, Celery, and the environment, which is read only here."""
