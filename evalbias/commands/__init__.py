"""The commands of ``evalbias.cli``; their imports are deferred, so that ``--help`` is fast."""
