"""`python -m deploy.demo`. Loading PyTorch and the rest takes seconds, so that has a bar, too."""

import sys

from rich.console import Console

from deploy.demo.options import parse
from deploy.demo.progress import bar


def main() -> int:
    options = parse()
    try:
        with bar(Console(stderr=True), "load", None):
            from deploy.demo import command
    except KeyboardInterrupt:
        print("demo: interrupted")
        return 130
    return command.main(options)


if __name__ == "__main__":
    sys.exit(main())
