"""Of an environment rank, world size, local rank and host are kept, and nothing else, ever."""

from pathlib import Path

import pytest

from tests.support import Cli, MakeForged, copied, edit, mostly_nightly

pytestmark = pytest.mark.slow  # robustness: each starts processes or reads many odd inputs

SECRET = "hunter2-s3cr3t"


@pytest.fixture
def reports(request: pytest.FixtureRequest, forged: MakeForged, tmp_path: Path) -> list[Path]:
    """Reports whose environment, string pool and captured output hold a secret."""
    schema = str(request.param)
    job = forged("plain", iterations=12, schema=schema)
    reports = copied(job.reports, tmp_path / "reports")
    joint = "\0" if schema == "2022.4" else ";"
    for rank, report in enumerate(reports):
        edit(
            report,
            "update TARGET_INFO_SYSTEM_ENV set value = ? || value where name = 'DeviceEnvironment'",
            f"SECRET_TOKEN={SECRET}{joint}PMIX_SERVER_URI=a;b{joint}",
        )
        edit(report, "insert into StringIds values (999999, ?)", f"SECRET_TOKEN={SECRET}")
        if schema == "2023.4":
            edit(
                report,
                "insert into META_DATA_CAPTURE values ('PROCESS_0:ENVIRONMENT_VARIABLE', ?)",
                f'SECRET_TOKEN="{SECRET}"',
            )
            edit(
                report,
                "insert into META_DATA_CAPTURE values ('PROCESS_0:COMMAND', ?)",
                f"python train.py --token {SECRET} --rank {rank}",
            )
    return reports


@pytest.mark.parametrize("reports", mostly_nightly(["2023.4", "2022.4"]), indirect=True)
def test_no_secret_leaves_a_report(cli: Cli, reports: list[Path]) -> None:
    folder = reports[0].parent
    assert SECRET.encode() in reports[0].read_bytes(), "else this shows nothing"
    outputs = [
        cli(command, folder, "--verbose", "--format", output)
        for command in ("check", "ingest")
        for output in ("table", "json", "csv", "markdown")
    ]
    for command in ("imbalance", "pick-reports"):
        outputs += [cli(command, "--verbose", "--format", output) for output in ("table", "csv")]
    outputs.append(cli("imbalance", "--format", "json"))
    for result in outputs:
        assert result.code == 0
        assert SECRET not in result.out + result.err
        assert "SECRET_TOKEN" not in result.out + result.err
    content = Path("rankscope.duckdb").read_bytes()
    assert b"SECRET_TOKEN" not in content
    assert SECRET.encode() not in content
    assert {path.name for path in Path().iterdir()} == {"reports", "rankscope.duckdb"}


@pytest.mark.parametrize("reports", mostly_nightly(["2023.4", "2022.4"]), indirect=True)
def test_nor_does_an_error_tell_it(cli: Cli, reports: list[Path]) -> None:
    given = cli("ingest", *reports, "--iteration", "lap")
    given.refused(3, reports[0].name)
    reports[1].write_bytes(reports[1].read_bytes()[:20_000])
    damaged = cli("ingest", *reports)
    damaged.refused(3, reports[1].name)
    for result in (given, damaged):
        assert SECRET not in result.out + result.err
        assert "SECRET_TOKEN" not in result.out + result.err
