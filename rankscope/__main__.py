"""`python -m rankscope` is the command `rankscope`."""

from rankscope_cli.main import main

if __name__ == "__main__":
    main()
