"""What varies between installations: Django, Celery, the environment (read only here)."""
