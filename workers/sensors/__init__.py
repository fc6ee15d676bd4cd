"""The sensor service: timers, polls, and the sensors of packs as child processes.

service     the process: starts the others, and ends them
ticking     timers, in the main thread
supervisor  which sensors are ours: renews, takes, starts, ends; a thread
running     one life of a pack's sensor; a thread each
children    its process, within its limits
launching   the command, the environment and the keys of that process
lines       the protocol: what a line says
journal     its standard error, masked and bounded
polling     one poll; a thread each
http_polls  what `core.http_poll` finds
file_polls  what `core.file` finds
sentinel    a process that ends the sensors of a service that is gone or frozen
"""
