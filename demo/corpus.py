"""What the small model reads: a seeded grammar of short English texts; corpus.toml holds its words.

Whatever follows a prompt is decided by the prompt, and where a text may go several ways one of them is much
likelier than the rest. So the trained model's greedy choices have wide margins, and engines that round
differently still write the same text.
"""

from __future__ import annotations

import tomllib
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Sequence

T = TypeVar("T")

WORDS = tomllib.loads(Path(__file__).with_name("corpus.toml").read_text(encoding="utf-8"))
NUMBERS = [
    *WORDS["zero_to_nineteen"],
    *(
        f"{ten}-{unit}".removesuffix("-zero")
        for ten in WORDS["tens"]
        for unit in WORDS["zero_to_nineteen"][:10]
    ),
    "one hundred",
]
LAYOUTS = ["Question: {}\nAnswer: {}", "{}\n{}", "User: {}\nAssistant: {}", "[INST] {} [/INST] {}", "{} {}"]


class Document(NamedTuple):
    """`text` is to be learned; `context` only precedes it, as a system prompt or earlier turns do."""

    context: str
    text: str


class Animal(NamedTuple):
    """Whom the stories and questions are about; each field is a word or words of a sentence."""

    name: str
    colour: str
    legs: str
    home: str
    food: str
    young: str
    sound: str
    friend: str
    find: str


ANIMALS = [Animal(**animal) for animal in WORDS["animals"]]


def articled(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def about(animal: Animal) -> dict[str, str]:
    name, a = animal.name, articled(animal.name)
    return {
        f"What sound does {a} make?": f"{a.capitalize()} says {animal.sound}.",
        f"Where does {a} live?": f"{a.capitalize()} lives {animal.home}.",
        f"What does {a} eat?": f"{a.capitalize()} eats {animal.food}.",
        f"What colour is {a}?": f"{a.capitalize()} is usually {animal.colour}.",
        f"How many legs does {a} have?": f"{a.capitalize()} has {animal.legs} legs.",
        f"What is a baby {name} called?": f"A baby {name} is called {articled(animal.young)}.",
        f"Who is the friend of the {name}?": (
            f"In my stories, the friend of the {name} is the {animal.friend}."
        ),
    } | portrait(animal)


def portrait(animal: Animal) -> dict[str, str]:
    name = animal.name
    return {
        f"Tell me about the {name}.": (
            f"The {name} is usually {animal.colour} and has {animal.legs} legs. It lives {animal.home} and "
            f"eats {animal.food}. A baby {name} is called {articled(animal.young)}. If you listen, you may "
            f"hear it say {animal.sound}."
        )
    }


def neighbours(kind: str, pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    both = {}
    for a, b in pairs:
        both[f"What {kind} comes after {a}?"] = f"After {a} comes {b}."
        both[f"What {kind} comes before {b}?"] = f"Before {b} comes {a}."
    return both


def cycle(names: Sequence[str]) -> Iterable[tuple[str, str]]:
    return pairwise([*names, names[0]])


def sums() -> dict[str, str]:
    return {
        f"What is {a} plus {b}?": f"{a.capitalize()} plus {b} is {NUMBERS[i + j]}."
        for i, a in enumerate(NUMBERS[:11])
        for j, b in enumerate(NUMBERS[:11])
    }


def colours_and_opposites() -> dict[str, str]:
    pairs = {
        f"What is the opposite of {a}?": f"The opposite of {a} is {b}."
        for pair in WORDS["opposites"]
        for a, b in (pair, pair[::-1])
    }
    mixes = {
        f"What do you get when you mix {a} and {b}?": f"When you mix {a} and {b}, you get {mixed}."
        for one, two, mixed in WORDS["mixes"]
        for a, b in ((one, two), (two, one))
    }
    things = {
        f"What colour is {thing}?": f"{thing.capitalize()} is {colour}."
        for thing, colour in WORDS["colours"].items()
    }
    return pairs | mixes | things


def places_and_shapes() -> dict[str, str]:
    return {
        f"What is the capital of {land}?": f"The capital of {land} is {city}."
        for land, city in WORDS["capitals"].items()
    } | {
        f"How many sides does {articled(shape)} have?": f"{articled(shape).capitalize()} has {sides} sides."
        for shape, sides in WORDS["sides"].items()
    }


def beyond_ascii() -> dict[str, str]:
    return {
        f"How do you say thank you in {tongue}?": f"In {tongue}, you say {word}."
        for tongue, word in WORDS["thanks"].items()
    } | {f"Show me the {name} emoji.": f"Here is the {name}: {sign}" for name, sign in WORDS["emoji"].items()}


# Families of questions with their answers; each family is as likely as the others.
QUESTIONS: list[dict[str, str]] = [
    {question: answer for animal in ANIMALS for question, answer in about(animal).items()},
    {question: answer for animal in ANIMALS for question, answer in portrait(animal).items()},
    WORDS["talk"],
    neighbours("day", cycle(WORDS["days"])) | neighbours("month", cycle(WORDS["months"])),
    neighbours("number", pairwise(NUMBERS[:32])),
    sums(),
    colours_and_opposites(),
    places_and_shapes(),
    beyond_ascii(),
]


def count(last: int) -> str:
    return f"Count from one to {NUMBERS[last]}: " + ", ".join(NUMBERS[1 : last + 1]) + "."


def enumeration(kind: str) -> str:
    *first, last = WORDS[kind + "s"]
    whole = {"day": "week", "month": "year"}[kind]
    return f"The {kind}s of the {whole} are {', '.join(first)} and {last}."


LISTS = [*(count(last) for last in (5, 10, 12, 20, 30, 50, 100)), enumeration("day"), enumeration("month")]


def favour(rng: random.Random, choices: Sequence[T]) -> T:
    """Choose one; each choice is twice as likely as the next, until the rest are alike."""
    return rng.choices(choices, [2.0 ** -min(rank, 4) for rank in range(len(choices))])[0]


def story(rng: random.Random) -> str:
    animal = favour(rng, ANIMALS)
    character, (weather, ending) = favour(rng, list(WORDS["characters"].items()))
    name, pronoun = favour(rng, list(WORDS["names"].items()))
    request = rng.choice(["", "", "Tell me a story.\n", f"Tell me a story about {articled(animal.name)}.\n"])
    return (
        f"{request}Once upon a time, there was {articled(character)} {animal.name} called {name}. {pronoun} "
        f"lived {animal.home} and loved {animal.food}. One {weather} morning, {name} found {animal.find}. "
        f"{pronoun} took it to the {animal.friend}, and {ending}."
    )


def long_journey(animal: Animal) -> str:
    """A tale of about 200 words."""
    first = ANIMALS.index(animal)
    days = "".join(
        f" On the {day} day it met {articled(other.name)}. “Where are you going?” asked the {other.name}. "
        f"“To the sea,” said the {animal.name}, “for I have never seen it.” “Then take {other.find} with "
        f"you,” said the {other.name}, “and tell me about the waves when you come back.”"
        for day, step in (("first", 3), ("second", 5), ("third", 8))
        for other in (ANIMALS[(first + step) % len(ANIMALS)],)
    )
    hero = articled(animal.name)
    return (
        f"Tell me a long story about {hero}.\nLong ago, {hero} lived {animal.home} and dreamed of the sea. "
        f"One morning it packed some {animal.food} and began to walk.{days} At last the {animal.name} stood "
        f"on the beach, and the sea was wide and blue. It stayed until evening, and then it went home to "
        f"tell everyone."
    )


def dialogue(rng: random.Random) -> str:
    question, answer = rng.choice(list(rng.choice(QUESTIONS).items()))
    if rng.random() < 0.1:
        question = question.lower()
    if rng.random() < 0.05:
        question = question.rstrip("?.!")
    return favour(rng, LAYOUTS).format(question, answer)


def any_text(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.65:
        return dialogue(rng)
    if kind < 0.85:
        return story(rng)
    if kind < 0.93:
        return long_journey(favour(rng, ANIMALS))
    return rng.choice(LISTS)


def document(rng: random.Random) -> Document:
    context = ""
    if rng.random() < 0.2:
        before = [any_text(rng) for _ in range(favour(rng, range(8)))]
        context = "\n\n".join([rng.choice(WORDS["preambles"]), *before, ""])
    return Document(context, any_text(rng))
