"""`python -m triptych_cli`."""

from triptych_cli.main import main

main()
