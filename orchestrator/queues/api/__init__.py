"""The API of queues."""
