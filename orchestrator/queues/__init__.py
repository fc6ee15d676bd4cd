"""Shared work queues: named lanes of executions, who serves them, and their gates to AMQP."""
