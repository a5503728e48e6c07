def check() -> None:
    "x"
