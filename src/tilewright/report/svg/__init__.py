"""Charts as static SVG: pure functions from a plan's series to markup. No script, no font, no colour of their own.

Colours are CSS variables of the page (`--ink`, `--c0` ...), so that one drawing serves light, dark and print. Every
chart has a title and a description for readers who do not see it, and each mark says its figure when pointed at.
"""
