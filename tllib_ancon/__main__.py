"""What a shell starts: ``tllib-ancon``, and ``python -m tllib_ancon``."""

import signal
import sys


def command() -> int:
    """Run :func:`tllib_ancon.cli.main.command`; Ctrl-C before it is imported ends this without a word.

    Returns: the exit status
    """
    try:
        from tllib_ancon.cli import main

        return main.command()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(command())
