"""A bounded partial evaluator for Python sources that we may read but must never run.

A library's kernel generator is a Python program whose output is the list of kernels that get compiled. To know that
list without importing anything, `modules.TreeInterpreter` walks the generator's syntax tree: constants, lists, loops,
comprehensions, classes and calls of the generator's own functions. Anything outside the tree (torch, a compiler, the
machine) is an `Unknown`; a decision that depends on one stops the evaluation with `CannotFollow` and its line,
so that nothing is ever guessed. Nothing is executed, imported or written; steps and memory are metered.
"""

from __future__ import annotations
