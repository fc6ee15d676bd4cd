"""Webhooks: what others send by HTTP becomes events.

`profiles` and what it imports are pure: who signs how, and what makes two deliveries the same.
`receiving` does the rest, in this order: path, limits, signature, parsing, schema, event.
"""
