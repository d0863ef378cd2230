"""A config refuses what it does not know, in one sentence that carries both values and the remedy."""

from typing import Annotated, Literal

import pydantic
import pytest
from pydantic import Field, model_validator

from regard.config import Config
from regard.errors import ConfigError


class Engine(Config):
    cylinders: int = Field(4, ge=1, description="how many there are")
    fuel: Literal["petrol", "diesel"] = "petrol"


class Car(Config):
    engine: Engine = Engine()
    wheels: int
    seats: tuple[Annotated[int, Field(ge=1)], int] = (2, 3)

    @model_validator(mode="after")
    def _wheels_are_even(self) -> "Car":
        if self.wheels % 2:
            raise ConfigError(f"{self.wheels} wheels leave one alone", "use an even number")
        return self


def test_values_come_back_as_they_were_given():
    car = Car.model_validate({"wheels": 6, "engine": {"fuel": "diesel"}})
    assert (car.wheels, car.engine.fuel, car.engine.cylinders) == (6, "diesel", 4)
    assert Car.model_validate(car.model_dump()) == car


def test_a_config_does_not_change():
    car = Car(wheels=4)
    with pytest.raises(pydantic.ValidationError):
        car.wheels = 8
    assert car.wheels == 4


@pytest.mark.parametrize(
    ("given", "problem", "remedy"),
    [
        ({"wheel": 4}, "key 'wheels' is missing", "add it"),
        ({"wheels": 4, "engine": 3}, "3 is one value where a table is wanted", "give its keys: table.key=value"),
        ({"wheels": 4, "whels": 4}, "key 'whels' is unknown", "did you mean 'wheels'? known: engine, seats, wheels"),
        ({"wheels": 4, "roof": 1}, "key 'roof' is unknown", "known: engine, seats, wheels"),
        (
            {"wheels": 4, "engine": {"fule": "x"}},
            "key 'fule' is unknown",
            "did you mean 'fuel'? known: cylinders, fuel",
        ),
        ({"wheels": "many"}, "wheels = 'many' cannot be used", "it should be a valid integer"),
        (
            {"wheels": 4, "engine": {"cylinders": 0}},
            "cylinders = 0 cannot be used (how many there are)",
            "it should be greater than or equal to 1",
        ),
        (
            {"wheels": 4, "engine": {"fuel": "coal"}},
            "fuel = 'coal' cannot be used",
            "it should be 'petrol' or 'diesel'",
        ),
        ({"wheels": 4, "seats": [0, 3]}, "seats.0 = 0 cannot be used", "it should be greater than or equal to 1"),
        ({"wheels": 3}, "3 wheels leave one alone", "use an even number"),
    ],
)
def test_what_cannot_be_used_is_said_with_the_remedy(given, problem, remedy):
    with pytest.raises(ConfigError) as caught:
        Car.model_validate(given)
    assert caught.value.problem == problem
    assert caught.value.remedy.startswith(remedy)
    assert "\n" not in str(caught.value)


def test_keyword_arguments_are_refused_as_a_file_would_be():
    with pytest.raises(ConfigError, match="did you mean 'wheels'"):
        Car(wheels=4, whels=4)


class Gearbox(Config):
    automatic: bool | Literal["auto"] = Field("auto", description="who shifts")
    gears: int | tuple[int, int] | None = None


def test_a_key_of_several_kinds_says_all_of_them_and_no_more_than_its_name():
    with pytest.raises(ConfigError) as caught:
        Gearbox(automatic="maybe")
    assert str(caught.value) == (
        "automatic = 'maybe' cannot be used (who shifts); it should be a valid boolean or 'auto'"
    )
    with pytest.raises(
        ConfigError, match=r"^gears = 'many' cannot be used; it should be a valid integer or a valid tuple$"
    ):
        Gearbox(gears="many")
