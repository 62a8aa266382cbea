"""``python -m evalbias``: the command line."""

from evalbias.cli.app import main

main()
