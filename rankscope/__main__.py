"""`python -m rankscope` is the command `rankscope`."""

from rankscope_cli.start import main

if __name__ == "__main__":
    main()
