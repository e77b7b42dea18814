"""The collector: standard library only, read-only, Python 3.8 and later, sent to a host as one script.

Its modules import each other by `from tilewright.observe.collector...` lines alone, which `tilewright.observe.script`
takes out when it puts them together; so a name must not stand in two of them.
"""
