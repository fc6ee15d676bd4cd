"""The doors of queues to AMQP: task messages of foreign clients come in, answers go out."""
