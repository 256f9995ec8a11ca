"""`python -m counterfoil.demo`: the same as `counterfoil demo`."""

from counterfoil.cli.demo import command

if __name__ == "__main__":
    command(prog_name="counterfoil demo")
