"""The command `fs3`. A command is a module of this package with a click command named `command`.

Modules are imported when their command is called: `fs3 --help` must be instant, and no command
waits for what another one needs. That is why the summaries stand here; a test compares them.

Exit codes: 0 done (or good, for commands that judge), 1 an error (or not good), 2 could not run.
"""

import importlib
import os
import sys
from typing import Any, Final

import click

from fs3.cli.settings import Settings

SECTIONS: Final[dict[str, dict[str, str]]] = {
    "Cluster": {
        "up": "Start a local cluster and wait until it is healthy.",
        "down": "Stop a local cluster; its data stays.",
        "status": "Show nodes, chains and where the cluster answers.",
        "health": "Say what is wrong, why, and what to do next.",
    },
    "File": {
        "ls": "List a directory.",
        "tree": "Show a directory and everything below it.",
        "cat": "Write files to standard output.",
        "cp": "Copy between the local disk and fs3, or within fs3.",
        "mv": "Rename or move, atomically.",
        "rm": "Remove files, or trees with -r.",
        "mkdir": "Make directories.",
        "stat": "Show everything known about a path.",
        "df": "Show the space of the cluster.",
    },
}

EXAMPLES: Final = """\
fs3 up --nodes 3 --replicas 2        a cluster on this machine
fs3 cp -r ./photos fs3:/photos       local to fs3
fs3 ls -l /photos                    paths of the other commands are in fs3
fs3 cat /photos/notes.txt | wc -l
fs3 cp fs3:/photos/a.jpg .           back to the local disk
tar c . | fs3 cp - fs3:/backup.tar   from standard input
"""


class Commands(click.Group):
    """A group that imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return [name for section in SECTIONS.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command = importlib.import_module(f"fs3.cli.{cmd_name}").command
        assert isinstance(command, click.Command), f"fs3.cli.{cmd_name}.command is a click command"
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        for title, commands in SECTIONS.items():
            with formatter.section(f"{title} commands"):
                formatter.write_dl(list(commands.items()))
        with formatter.section("Examples"):
            for line in EXAMPLES.splitlines():
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")
        formatter.write_paragraph()
        formatter.write_text("`fs3 COMMAND --help` explains a command.")


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--url", metavar="URL", help="Cluster: fs3://host:port.  [env: FS3_URL]")
@click.option(
    "--dir",
    "directory",
    metavar="DIR",
    help="Directory of a local cluster.  [env: FS3_DIR; default: ~/.local/share/fs3]",
)
@click.version_option(package_name="fs3", prog_name="fs3")
@click.pass_context
def cli(context: click.Context, url: str | None, directory: str | None) -> None:
    """fs3, a distributed file system for training and inference data."""
    given: Settings = context.obj or Settings()
    context.obj = Settings(url or given.url, directory or given.directory, given.connect)


def main(arguments: list[str] | None = None, settings: Settings | None = None) -> int:
    """Runs one command line; the exit code."""
    if not (sys.argv[1:] if arguments is None else arguments):
        arguments = ["--help"]
    try:
        result: Any = cli.main(arguments, prog_name="fs3", standalone_mode=False, obj=settings)
        sys.stdout.flush()
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.Abort:
        return _say("interrupted", 130)
    except click.UsageError as error:
        hint = f"; see `{error.ctx.command_path} --help`" if error.ctx else ""
        return _say(error.format_message().rstrip(".") + hint, 2)
    except click.ClickException as error:
        return _say(error.format_message(), error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        from fs3.cli.remedy import explain

        return _say(explain(error), 1)
    return result if isinstance(result, int) else 0


def _say(message: str, code: int) -> int:
    print(f"fs3: {' '.join(message.split())}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
