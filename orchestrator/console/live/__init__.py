"""Pages that keep up: a stream for each visible tab says which topics moved, and the page asks
again for what it shows.

    pulse      looks once a second, while somebody listens, at what changed
    hub        gives that to the tabs that have asked for it
    stream     the address of the stream
    topics     what may be asked for

A topic is the entity of a feed (`execution`), one row of it (`execution:ID`), `presence` (who is up
and who is not), or `clock` (every five seconds, for ages). See ADR 82.
"""
