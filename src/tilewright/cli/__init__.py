"""The command line: one file a command, each thin over the public API of the same name."""
