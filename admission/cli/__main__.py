"""Entry point of the command `sluice`: Ctrl-C ends it without a traceback also while its modules are imported."""

import signal


def main() -> None:
    """Run the command line; until the called command is imported, Ctrl-C ends the process as in other programs."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell has it ignored in the background
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from admission.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
