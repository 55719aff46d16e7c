import sys

from tllib_ancon.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
