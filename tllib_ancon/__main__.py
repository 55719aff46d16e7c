import sys

from tllib_ancon.cli.terminal import command

if __name__ == "__main__":
    sys.exit(command())
