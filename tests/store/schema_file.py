"""`python -m tests.store.schema_file` writes the schema of the database to `schema.sql`."""

from pathlib import Path

import rankscope.store
from rankscope.store.ddl import ddl

FILE = Path(rankscope.store.__file__).with_name("schema.sql")

if __name__ == "__main__":
    FILE.write_text(ddl(), "utf-8")
