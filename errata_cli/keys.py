"""`errata keys`: make, revoke and list the API keys in a file. No service takes part: it reads the file when it changes."""

import datetime
import re
from pathlib import Path
from typing import Annotated, Final

import typer

from errata_kit.access.principals import DEFAULT_TENANT, Role

_EXPIRES: Final = re.compile(r"([1-9]\d{0,5})([hdw])")
_UNITS: Final = {"h": "hours", "d": "days", "w": "weeks"}

keys = typer.Typer(no_args_is_help=True, help="Make, revoke and list API keys. A service reads the file again when it changes.")
KeyFile = Annotated[Path, typer.Option("--file", envvar="ERRATA_API_KEYS_FILE", help="The file with the hashes of the keys.")]


@keys.command()
def create(
    file: KeyFile,
    principal: Annotated[str, typer.Option(help="Who calls with the key.")],
    role: Annotated[list[Role], typer.Option(case_sensitive=False, help="What the key allows. Repeatable.")],
    tenant: Annotated[str, typer.Option(help="Whose collections and runs it sees.")] = DEFAULT_TENANT,
    expires: Annotated[str, typer.Option(help="How long it lasts: 12h, 90d, 52w. Without it, until it is revoked.")] = "",
) -> None:
    """Make a key, and print it. It is shown once: the file keeps its hash only."""
    from errata_cli.terminal import ExitCode, errors, flat
    from errata_kit.access.key_writing import KeyFileFault, KeyRefused, NewKey, create_key

    try:
        wanted = NewKey(principal, frozenset(role), tenant, _duration(expires))
        key, entry = create_key(file, wanted, datetime.datetime.now(datetime.UTC))
    except (KeyFileFault, ValueError) as error:
        wrong = isinstance(error, KeyRefused | ValueError)
        raise _failed(f"--{error}" if wrong else str(error), usage=wrong) from None
    # Nothing but the key goes to standard output, so that it can be piped into a secret store.
    typer.echo(key)
    until = f"until {_local(entry.expire_time)}" if entry.expire_time else "until it is revoked"
    roles = ", ".join(entry.roles)
    errors().print(
        f"The key of {flat(entry.principal)} in tenant {entry.tenant}, for {roles}, {until}. It is not shown again.\n"
        f"Callers send it as metadata: authorization: Bearer KEY\n"
        f"Revoke it with: errata keys revoke --file {flat(str(file))} {entry.id}",
        markup=False,
    )
    raise typer.Exit(ExitCode.OK)


@keys.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The key's id: what stands between errata_ and the next _.")],
    file: KeyFile,
) -> None:
    """Revoke a key. A service refuses it a second after its file has changed; a mounted secret takes up to a minute."""
    from errata_cli.terminal import errors, flat
    from errata_kit.access.key_writing import KeyFileFault, revoke_key

    try:
        entry = revoke_key(file, key_id, datetime.datetime.now(datetime.UTC))
    except KeyFileFault as error:
        raise _failed(str(error)) from None
    errors().print(f"The key {entry.id} of {flat(entry.principal)} is revoked.", markup=False)


@keys.command("list")
def list_keys(file: KeyFile) -> None:
    """List the keys of a file, in the order in which they were made."""
    from errata_cli.tables import Column, show_table
    from errata_cli.terminal import output
    from errata_kit.access.key_writing import KeyFileFault, read_keys

    try:
        entries = read_keys(file)
    except KeyFileFault as error:
        raise _failed(str(error)) from None
    now = datetime.datetime.now(datetime.UTC)
    rows = [
        (
            entry.id,
            entry.principal,
            entry.tenant,
            ",".join(entry.roles),
            _state(entry.revoke_time, entry.expire_time, now),
            _local(entry.create_time),
            _local(entry.expire_time) if entry.expire_time else "-",
        )
        for entry in entries
    ]
    titles = ("id", "principal", "tenant", "roles", "state", "created", "expires")
    show_table(output(), [Column(title, drop=place) for place, title in enumerate(titles)], rows)


def _duration(text: str) -> datetime.timedelta | None:
    if not text:
        return None
    found = _EXPIRES.fullmatch(text)
    if found is None:
        raise ValueError(f"expires {text}: must be how long, such as 12h, 90d or 52w")
    return datetime.timedelta(**{_UNITS[found[2]]: int(found[1])})


def _state(revoked: datetime.datetime | None, end: datetime.datetime | None, now: datetime.datetime) -> str:
    if revoked is not None:
        return "revoked"
    return "expired" if end is not None and end <= now else "active"


def _local(moment: datetime.datetime) -> str:
    return moment.astimezone().strftime("%Y-%m-%d %H:%M")


def _failed(sentence: str, *, usage: bool = False) -> typer.Exit:
    from errata_cli.terminal import ExitCode, errors, printable

    errors().print(f"errata: {printable(sentence)}", markup=False)
    return typer.Exit(ExitCode.USAGE if usage else ExitCode.FAILED)
