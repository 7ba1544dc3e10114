"""`python -m deploy.demo`. Loading PyTorch and the rest takes seconds, so that has a bar, too."""

import sys

from rich.console import Console

from deploy.demo.progress import bar


def main() -> int:
    if {"-h", "--help"}.isdisjoint(sys.argv):
        with bar(Console(stderr=True), "load", None):
            from deploy.demo import command
    from deploy.demo import command

    return command.main()


if __name__ == "__main__":
    sys.exit(main())
