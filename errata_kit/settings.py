"""Settings from environment variables: one frozen class per service, checked before anything starts."""

import os
import re
import sys
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

from pydantic import Field, ValidationError, ValidationInfo, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from errata_kit.access.settings import AccessSettings

# Kubernetes describes each Service to each pod by variables such as JUDGE_SERVICE_HOST and JUDGE_PORT_50053_TCP_ADDR.
_SERVICE_LINK = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP)(_\w+)?)$")


class SecretFileUnreadable(ValueError):
    """A variable NAME_FILE names a file that can't be read, or NAME is set as well."""


class SecretFiles(PydanticBaseSettingsSource):
    """Reads a secret NAME from the file that NAME_FILE names, as mounted secrets come. Trailing line ends are cut off."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """The content of the secret's file; None without one. Raises SecretFileUnreadable."""
        name = next(iter(_names(field.validation_alias)), "")
        path = os.environ.get(f"{name}_FILE") if name and is_secret(field) else None
        if not path:
            return None, name, False
        if os.environ.get(name):
            raise SecretFileUnreadable(f"{name} and {name}_FILE are both set")
        try:
            return Path(path).read_text(encoding="utf-8").rstrip("\r\n"), name, False
        except (OSError, UnicodeDecodeError):
            raise SecretFileUnreadable(f"{name}_FILE: the file {path} can't be read") from None

    def __call__(self) -> dict[str, Any]:
        """Every secret that has a file, by variable."""
        found = (self.get_field_value(field, name) for name, field in self.settings_cls.model_fields.items())
        return {name: value for value, name, _ in found if value is not None}


def is_secret(field: FieldInfo) -> bool:
    """Whether a setting holds a secret, which may come from a file."""
    return "SecretStr" in str(field.annotation)


class ServiceSettings(AccessSettings):
    """What all services have in common."""

    log_level: Literal["debug", "info", "warning", "error"] = Field("info", validation_alias="ERRATA_LOG_LEVEL")
    """Lines below this level are dropped."""
    log_format: Literal["json", "text"] = Field("json", validation_alias="ERRATA_LOG_FORMAT")
    """One JSON object a line, or coloured text for a terminal."""
    max_concurrent_calls: int = Field(256, validation_alias="ERRATA_MAX_CONCURRENT_CALLS", ge=1, le=100_000)
    """Calls a service works on at once; more are refused as OVERLOADED. Health checks and reflection do not count."""
    drain_pause_seconds: float = Field(0.5, validation_alias="ERRATA_DRAIN_PAUSE_SECONDS", ge=0, le=60)
    """Between NOT_SERVING and refusing new calls on SIGTERM, so that clients have noticed."""
    drain_grace_seconds: float = Field(25.0, validation_alias="ERRATA_DRAIN_GRACE_SECONDS", ge=0, le=3600)
    """How long calls under way may go on after SIGTERM. Kubernetes kills after 30 seconds by default."""
    exit_with_parent: int = Field(0, validation_alias="ERRATA_EXIT_WITH_PARENT", ge=0)
    """Drain and stop when the parent process is no longer this one; `errata up` sets its own id. 0 means never."""
    max_connection_age_seconds: float = Field(300.0, validation_alias="ERRATA_MAX_CONNECTION_AGE_SECONDS", ge=1)
    """After this a client must connect anew, so that it finds new replicas."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments first, then the environment, then the files that it names."""
        return init_settings, env_settings, SecretFiles(settings_cls)

    @field_validator("port", "metrics_port", mode="before", check_fields=False)
    @classmethod
    def _no_service_link(cls, value: object, info: ValidationInfo) -> object:
        # Kubernetes sets JUDGE_PORT=tcp://10.0.0.1:50053 in each pod when a Service is named judge.
        if isinstance(value, str) and value.startswith("tcp://"):
            return cls.model_fields[info.field_name or ""].default
        return value


S = TypeVar("S", bound=ServiceSettings)


def load_settings(settings: type[S], prefix: str) -> S:
    """Read the settings of a service whose own variables start with prefix, such as "JUDGE_".

    An impossible value, or a variable with the prefix that no setting has, stops the process with exit code 2 and a sentence
    that names the variable.
    """
    try:
        loaded = settings()  # type: ignore[call-arg]  # the environment gives the values
    except SecretFileUnreadable as error:
        _stop([f"{error}."])
    except ValidationError as error:
        _stop([_sentence(settings, item["loc"], item["msg"]) for item in error.errors()])
    known = {name for field in settings.model_fields.values() for name in _names(field.validation_alias)}
    unknown = sorted(
        name for name in os.environ if name.startswith(prefix) and name not in known and not _SERVICE_LINK.search(name)
    )
    if unknown:
        own = ", ".join(sorted(name for name in known if name.startswith(prefix)))
        _stop([f"{name} is not a setting. Settings with this prefix: {own}." for name in unknown])
    return loaded


def default_data_dir() -> Path:
    """Where data lives unless ERRATA_DATA_DIR says otherwise: .errata in the current folder."""
    return Path(".errata")


def _names(alias: object) -> tuple[str, ...]:
    return (alias,) if isinstance(alias, str) else ()


def _sentence(settings: type[ServiceSettings], location: tuple[int | str, ...], message: str) -> str:
    # Errors are located by alias, or by field name where a whole-model check failed.
    name = str(location[0]) if location else settings.__name__
    field = settings.model_fields.get(name)
    if field is not None:
        name = next(iter(_names(field.validation_alias)), name)
    value = os.environ.get(name)
    # A setting that holds a secret never shows its value, and neither does one whose file somebody may have mixed up with it.
    secrets = {alias for each in settings.model_fields.values() if is_secret(each) for alias in _names(each.validation_alias)}
    hidden = name in secrets or re.search(r"KEY|TOKEN|SECRET|PASSWORD", name)
    shown = "" if value is None or hidden else f" (it is {value[:80]!r})"
    # Our own validators' sentences come with a prefix that says nothing.
    said = message.removeprefix("Value error, ")
    if said[1:2].islower():
        # A sentence of pydantic's, and not one that begins with the name of a variable.
        said = said[:1].lower() + said[1:]
    return f"{name}{shown}: {said}."


def _stop(sentences: list[str]) -> NoReturn:
    sys.stderr.write("".join(f"errata: {sentence}\n" for sentence in sentences))
    raise SystemExit(2)
