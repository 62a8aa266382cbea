"""What the commands of ``evalbias.cli`` share; loaded when a command runs, so that ``--help`` is quick."""
