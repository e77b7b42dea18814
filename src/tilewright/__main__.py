"""Where the program starts, as `tilewright` and as `python -m tilewright`: it ends quietly whenever Ctrl-C comes.

Until the command line is imported nothing is under way, and the system's own handling of SIGINT ends the process
without a word. From then on Ctrl-C is an exception, so that files, compilers and servers are put in order, and
`tilewright.cli.main.invoke` says one sentence. In the end the process dies of the signal: a shell sees 128 + its
number (130 for Ctrl-C), and a loop in a script stops with it.

What is imported before `run` is kept to a few small modules, because the interpreter prints a traceback for a Ctrl-C
in their midst, as it does for one while it starts itself.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


def run() -> NoReturn:
    """Console entry point."""
    # The built-in half of `signal`, which is there without an import (that of `signal` brings `enum` and takes 5 ms).
    signals: Any = __import__("_signal")
    sigint: int = signals.SIGINT
    # Whoever starts us with Ctrl-C ignored (nohup, `&` in a script) wants it so.
    heard: bool = signals.getsignal(sigint) is signals.default_int_handler
    if heard:
        signals.signal(sigint, signals.SIG_DFL)
    import atexit

    code = 128 + sigint
    ended_by: list[int] = []
    atexit.register(_die, ended_by)  # the first that is registered runs last: everything else is put in order by then
    from tilewright.cli.main import STOPPED_BY, invoke

    try:
        if heard:
            sys.unraisablehook = _unraisable
            signals.signal(sigint, signals.default_int_handler)
        code = invoke()
        if heard:
            signals.signal(sigint, signals.SIG_DFL)  # the answer is given: what is left is the interpreter's end
    except KeyboardInterrupt:  # between two lines of this function, or behind the last except of `invoke`
        if heard:
            signals.signal(sigint, signals.SIG_DFL)
    if code in STOPPED_BY:
        ended_by.append(STOPPED_BY[code])
    sys.exit(code)


def _unraisable(found: sys.UnraisableHookArgs) -> None:
    """Ctrl-C inside a callback that cannot raise (of a weak reference, a destructor): it is said again, a moment later.

    The interpreter would print it as ignored, with its traceback, and go on.
    """
    if not isinstance(found.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(found)
        return
    import _thread

    _thread.start_new_thread(_again, (_thread.get_ident(),))  # such exceptions come to the main thread alone


def _again(main_thread: int) -> None:
    from time import sleep

    sleep(0.01)
    signals: Any = __import__("_signal")
    if hasattr(signals, "pthread_kill"):
        signals.pthread_kill(main_thread, signals.SIGINT)  # also wakes it where it waits
    else:
        import _thread

        _thread.interrupt_main()


def _die(ended_by: list[int]) -> None:
    """End the process with the signal that stopped it, where the system has such a thing."""
    import os

    if not ended_by or os.name != "posix":
        return
    import signal

    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue
    signal.signal(ended_by[0], signal.SIG_DFL)
    os.kill(os.getpid(), ended_by[0])


if __name__ == "__main__":
    run()
