"""Bounds of the contract, as pydantic types. The protos state them; convert modules build these and so enforce them."""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from errata_kit.errors import FieldViolation, InvalidFields

KIB: Final = 1024
COLLECTION_PATTERN: Final = r"^[a-z0-9][a-z0-9_-]{0,62}$"
DEFAULT_COLLECTION: Final = "default"
DEFAULT_PAGE_SIZE: Final = 50
MAX_PAGE_SIZE: Final = 500


def utf8_at_most(limit: int) -> AfterValidator:
    """At most limit bytes in UTF-8."""

    def check(text: str) -> str:
        # A character is at least one byte, so most texts need no encoding to be measured.
        if len(text) > limit or (len(text) * 4 > limit and len(text.encode()) > limit):
            raise ValueError(f"must be at most {limit} bytes of UTF-8")
        return text

    return AfterValidator(check)


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty or only white space")
    return text


def _without_nul(text: str) -> str:
    # PostgreSQL keeps no text with it, and no question needs it.
    if "\0" in text:
        raise ValueError("must not contain the character U+0000")
    return text


NotBlank = AfterValidator(_not_blank)
NoNul = AfterValidator(_without_nul)
Question = Annotated[str, NotBlank, NoNul, utf8_at_most(8 * KIB)]
Query = Annotated[str, NoNul, utf8_at_most(8 * KIB)]
Name = Annotated[str, NoNul, utf8_at_most(128)]
AnswerText = Annotated[str, NotBlank, utf8_at_most(64 * KIB)]
CollectionName = Annotated[str, Field(pattern=COLLECTION_PATTERN)]
DocumentId = Annotated[str, Field(min_length=1), utf8_at_most(512)]
UnitScore = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
PageSize = Annotated[int, Field(ge=0), AfterValidator(lambda size: min(size or DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE))]


class Bounded(BaseModel):
    """Base of the models that convert modules build from requests."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")


def validated(model: type[M], values: Mapping[str, Any], converted: Mapping[str, Callable[[], Any]] | None = None) -> M:
    """Build a model from a request's fields. converted: fields whose conversion may itself raise InvalidFields.

    Raises InvalidFields with every broken field, its path written as in the proto: settings.top_k, passages[3].text.
    """
    given, broken, failed = dict(values), list[FieldViolation](), set[str]()
    for name, convert in (converted or {}).items():
        try:
            given[name] = convert()
        except InvalidFields as error:
            broken.extend(error.violations)
            failed.add(name)
    try:
        built = model.model_validate(given)
    except ValidationError as error:
        found = [item for item in error.errors() if item["loc"][:1] not in {(name,) for name in failed}]
        broken.extend(FieldViolation(_path(item["loc"]), _description(item)) for item in found[:32])
    else:
        if not broken:
            return built
    raise InvalidFields(tuple(broken)) from None


def invalid(field: str, description: str) -> InvalidFields:
    """A single broken field."""
    return InvalidFields((FieldViolation(field, description),))


def first_few(items: Sequence[T], limit: int) -> Sequence[T]:
    """At most one item more than the limit: the model sees that there are too many, and a message of millions is not copied."""
    return items[: limit + 1]


def first_entries(entries: Mapping[str, str], limit: int) -> dict[str, str]:
    """At most one entry more than the limit, for the same reason."""
    return dict(islice(entries.items(), limit + 1))


def _path(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path.removeprefix(".")


def _description(item: Any) -> str:
    # "Value error, must …" comes from our own validators; pydantic's own sentences start with what was expected.
    message = str(item["msg"]).removeprefix("Value error, ")
    return message[:1].lower() + message[1:]
