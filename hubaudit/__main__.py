"""`python -m hubaudit`."""

from hubaudit.cli import main

main()
