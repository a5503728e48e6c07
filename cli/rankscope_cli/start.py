"""The entry point: a signal in the program's first and last moments ends it without a traceback.

It imports almost nothing, so that its handlers are in place before the imports that take time.
"""

import atexit
import gc
import os
import signal
import sys
from contextlib import suppress

from rankscope_cli.limits import run_in_child
from rankscope_cli.signals import SIGNALS, end_now

GARBAGE_AFTER = 200_000
"""New objects after which Python collects garbage. Its default of 700 costs time in vain, as the
objects that imports make are never freed."""


def main() -> None:
    """Run the command line and exit with a code of CONTRACT.md.

    The process ends when the functions registered with `atexit` have run. Python would then take
    0.1 s to tear down its modules, and DuckDB would report leaks.
    """
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored on purpose, as by nohup
            signal.signal(number, end_now)
    code = run_in_child(sys.argv[1:])
    if code is not None:
        os._exit(code)
    gc.set_threshold(GARBAGE_AFTER)
    if sys.argv[1:2] != ["capture"]:  # the program that it records keeps its own threads
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy starts one per core at import
    from rankscope_cli.main import main as run

    try:
        run()
    except SystemExit as ended:
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):  # closed, or its reader is gone
                stream.flush()
        if isinstance(ended.code, int):
            os._exit(ended.code)
        raise


if __name__ == "__main__":
    main()
