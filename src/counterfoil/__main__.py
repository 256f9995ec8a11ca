"""`python -m counterfoil`: the same as the `counterfoil` command."""

from counterfoil.cli.main import main

main()
