"""The operators' console: live pages about what is wrong now, and the act that ends it.

    pages/      a function for each page, which returns what its template shows
    live/       one stream for each visible tab: it says that something moved, never what
    attention   what is not well, worst first
    acts        verbs of operators, called by forms

It stands on all other apps, has no models, and decides nothing.
"""
