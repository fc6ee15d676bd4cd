"""The API of notifications. Streams themselves are answered by `workers/notifier`."""
