"""`tilewright mcp`: the commands as tools of the Model Context Protocol, on stdin and stdout.

server.py     the protocol, by the official SDK; starts a worker and holds it to its limits
worker.py     a process of its own that answers the calls, one after the other, and can be killed
access.py     which paths a call may touch; the worker's audit hook holds every file operation to it
tools.py      the tools: what each takes, what it answers with, the function of the library that answers
arguments.py  the tools' input schemas, taken from the commands' options and the questions' types
"""

from __future__ import annotations
