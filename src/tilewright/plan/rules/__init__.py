"""The rules of a plan, one a file: each module defines `RULE`. The registry finds them by looking in this folder."""
