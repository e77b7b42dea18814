"""What a log says: known lines counted and explained (`explain`), unknown errors shown as unknown.

`scan` reads a stream, `explain` turns what it found into a report; a plan that only counts lines needs `scan` alone.
"""
