"""The notifier: streams of what changes, over Server-Sent Events and WebSocket.

`hub` gives each notification to the clients that want it and may have it, `credentials` knows what
they may, `doors` lets them in, `sse` and `websocket` speak with them. An API process has all of
this too, for an installation without a notifier; it begins with the first client.
"""
