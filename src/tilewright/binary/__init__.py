"""What is in a GPU binary, and where it runs: cubins, fatbinaries, host libraries that carry them, PTX, wheels.

Everything is read by our own small readers, in bounded time and memory; nothing of a file is run. What was learned from
where is in docs/notes/binaries.md.
"""
