"""Short passages in which "it" stands for one thing, with a number of other sentences between the two.

    The potters carried the vase. Two dogs barked. Nobody spoke. Then it broke.
                            ^^^^                                    ^^

Nothing between names another thing that "it" could stand for in the singular and that breaks, so the antecedent is not
in doubt. Passages are a function of their seed and number.
"""

from dataclasses import dataclass

from regard.data.corpus import draw, generator

MAKERS = ("potters", "sculptors", "painters", "neighbours", "students", "farmers", "sailors", "nurses")
THINGS = ("vase", "mirror", "bottle", "lamp", "plate", "bowl", "cup", "clock")
VERBS = ("carried", "lifted", "washed", "bought", "found", "moved")
BETWEEN = (
    "Nobody spoke",
    "Two dogs barked",
    "People were laughing",
    "Children played outside",
    "They were tired",
    "Some of them sang",
    "Others waited",
    "Birds were flying south",
)
ENDS = ("broke", "fell", "cracked", "disappeared")
FARTHEST = 6


@dataclass(frozen=True)
class Passage:
    """A passage, the pronoun's antecedent and how many sentences stand between."""

    text: str
    antecedent: str
    between: int


def passages(count: int, seed: int = 0) -> list[Passage]:
    """With 0 to `FARTHEST` sentences between, in turn."""
    found = []
    for number in range(count):
        random = generator("passages", seed, number)
        between = number % (FARTHEST + 1)
        maker, thing, verb, end = (one[draw(random, len(one))] for one in (MAKERS, THINGS, VERBS, ENDS))
        left = list(BETWEEN)
        others = [left.pop(draw(random, len(left))) for _ in range(between)]
        sentences = [f"The {maker} {verb} the {thing}", *others, f"Then it {end}"]
        found.append(Passage(". ".join(sentences) + ".", thing, between))
    return found
