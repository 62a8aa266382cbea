"""``evalbias`` and ``python -m evalbias``: the command line."""


def start() -> None:
    """Import the commands and run one; Ctrl-C stops it without a traceback, also during the import."""
    try:
        from evalbias.cli.app import main as run

        run()
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    start()
