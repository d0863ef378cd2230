"""The laws a correct model obeys, one table for the doctor and for the tests: each is written once."""

from regard.inspection.laws.attending import ATTENDING
from regard.inspection.laws.examined import Examined
from regard.inspection.laws.files import FILES
from regard.inspection.laws.law import ROUNDING, Law, Trial
from regard.inspection.laws.learning import LEARNING
from regard.inspection.laws.reading import READING
from regard.inspection.laws.recorded import RECORDED
from regard.inspection.laws.stepping import STEPPING

LAWS: tuple[Law, ...] = (*READING, *STEPPING, *ATTENDING, *RECORDED, *LEARNING, *FILES)
"""All of them, those of reading first."""
BY_NAME = {law.name: law for law in LAWS}

__all__ = ["BY_NAME", "LAWS", "ROUNDING", "Examined", "Law", "Trial"]
