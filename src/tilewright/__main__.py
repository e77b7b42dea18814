"""`python -m tilewright` is the same program as `tilewright`."""

from tilewright.cli.main import run

if __name__ == "__main__":
    run()
