"""The commands of ``evalbias.cli.app``; their imports are deferred, so that ``--help`` is fast."""
