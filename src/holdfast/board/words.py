"""What words are worth to the board. How a text is split into words, folded and stemmed is memory's.

`terms` are the words of a text that carry meaning; `subject_terms` are those that can tell one matter from
another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from itertools import chain
from typing import Final

from holdfast.memory.folding import fold
from holdfast.memory.rarity import UNLISTED, commonness
from holdfast.memory.stopwords import FUNCTION_WORDS
from holdfast.memory.text import Language, language_of, pieces, run_terms, runs, stem

__all__ = ["Language", "language_of"]

_LONGEST: Final = 48
_COMPOUND: Final = 9
_PREFIX: Final = 6
_LANGUAGES: Final[tuple[Language, ...]] = ("english", "german")
_MEASURED: Final = re.compile(r"\d+[^\W\d_]{1,3}")
MAX_CHARS: Final = 8_000

_FILLER = """
absolutely actually add ago always amazing another anything appreciate ask awesome away awful back bad believe
best better big bit bring call came can't care change check chance come cool could course crazy day days deal
definitely different doesn't don't drop each easy else end enough enjoy even ever every everyone everything
exactly excited experience extra far feel feels felt find fine first forward found fun gave give glad go goes
going gonna gone good gotta great guess guy guys happen happy hard having haven't hear heard hello help helped
hey hi hope i'd i'll i'm i've idea important incredible interesting isn't it's kind keep kept know last lately
later least leave left let's life little live long look looking lot lots love lovely luck made main make makes
making many matter maybe mean meet mind moment morning move need needed never new next nice night nothing oh
ok okay old one part past people perfect person pick place plan please point possible pretty problem proud put
quick quite ready real really reason recently remember right run said saw say second see seem seems seen send
sense set share should show side small something sometimes soon sorry sound sounds special spend start started
stay still stop stuff such super sure take taking talk tell thank thanks that's there's they're thing things
think thought time times today together told tomorrow tonight took totally tried true try trying turn two
under understand use used useful usually wait want wanted wasn't way ways we're week weekend weeks welcome
well went what's while whole will wish within won't wonderful wondering word work worked working works world
worth wow wrong yeah year years yep yes yesterday you're you've bitte danke gut hallo heute ja klar mal morgen
nein gern genau gestern machen mehr neu schon super viel vielleicht wirklich zeit
"""
_MEASURES = """
utc gmt cet cest est pst am pm euro euros eur dollar dollars usd chf gbp pound pounds cent cents percent
prozent per pro second seconds sekunde sekunden minute minutes minuten hour hours stunde stunden uhr o'clock
day days tag tage tagen week weeks woche wochen month months monat monate monaten year years jahr jahre jahren
kg kilo kilos km cm mm ml mb gb tb kb ms gram grams gramm litre litres liter litern centimetre centimetres
centimeters zentimeter zentimetern millimetre millimetres millimeter millimetern kubik kubikmeter quadratmeter
quadratmetern kilometer kilometern kilometers miles grad degrees below above over under around about unter
über etwa rund monday tuesday wednesday thursday friday saturday sunday mondays tuesdays wednesdays thursdays
fridays saturdays sundays montag montags dienstag dienstags mittwoch mittwochs donnerstag donnerstags freitag
freitags samstag samstags sonntag sonntags january february march april may june july august september october
november december januar februar märz mai juni juli oktober dezember one two three four five six seven eight
nine ten eleven twelve eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf first third erste ersten
zweite zweiten dritte dritten half halb
"""
_COMMON = """
mr mrs ms dr prof herr herrn frau firma hello hi dear welcome congratulations glückwunsch noted notiert gerne
gern abend abends morgens nachts nacht mittags vormittag nachmittag evening afternoon noon midnight soll
sollen sollte könnte könnten müssen müsste brauche brauchen braucht komme kommt kommen gehe geht gehen gibt
geben nimm nehme nehmen nimmt liegt liegen steht stehen heißt kostet kosten läuft laufen bleibt bleiben macht
mache lass lassen dafür davon daran dabei darauf darin dazu deshalb trotzdem bereits bisher erst ungefähr
höchstens mindestens wichtig richtig stimmt wäre würde würden hätte habe hatten wurde wurden worden sagt sagte
sagen gesagt eher lieber beide beiden jeweils insgesamt zusammen ihre ihrem ihren ihrer ihnen seine seinem
seinen seiner meinem meinen meiner deine deinen unsere unserem unseren unserer diesem diesen welche welcher
welches wann warum wohin seit zwischen während trotz wegen statt nächste nächsten nächster letzte letzten
letztes neue neuen neuer neues alte alten ganz ganze ganzen viele wenig weniger alles nichts niemand jemand ab
beim ins dran weg los her hin nämlich sowieso sonst immer nie oft gleich bald später früher jetzt gerade wohl
zurzeit will wollen wollte kannst können dürfen darf schreibe schreiben schicke schicken geschickt bekommen
bekommt habt bitte fehlt passt klingt schön frage fragen gefragt says tell told asked asking wants needs gets
goes comes cost costs paid pay price priced moved moves takes puts date dates number list until since already
yet drafted added changed sent written write called open opened closed free next last same both either without
instead against per also maybe perhaps done fixed set sets setting let lets due rest near kriegen kriegt
kriegst kriege gekriegt holen holt hole geholt dauert meint meinte denke denkt entwurf termin frist liste
datum nummer preis
"""


@lru_cache(maxsize=8_192)
def terms(text: str) -> tuple[str, ...]:
    """The words of a text that carry meaning, in order and with repeats; long texts count by their head.

    The texts around an exchange are the same for the next one, so they are kept for a while.
    """
    head = text[:MAX_CHARS]
    return tuple(chain.from_iterable(map(_FORMS[language_of(head)], runs(head))))


def each_term(text: str) -> Iterator[str]:
    """The terms of a text one by one, for those who seldom need them all."""
    head = text[:MAX_CHARS]
    forms = _FORMS[language_of(head)]
    return (form for run in runs(head) for form in forms(run))


@lru_cache(maxsize=8_192)
def telling(text: str) -> frozenset[str]:
    """The terms of a text without those of small talk."""
    return frozenset(terms(text)) - FILLER


@lru_cache(maxsize=512)
def asked_terms(question: str) -> frozenset[str]:
    """What a question asks for, to be held against texts of either language."""
    head = question[:MAX_CHARS]
    own = language_of(head)
    words = [run for run in runs(head) if _FORMS[own](run)]
    return frozenset(form for run in words for one in _LANGUAGES for form in _FORMS[one](run)) - FILLER


def _forms(run: str, language: Language) -> tuple[str, ...]:
    """The terms of a word. One of small talk stays as it is: "interesting" is no interest."""
    if (word := fold(run)) in _SMALL_TALK:
        return (word,)
    return tuple([form for form in run_terms(run, language) if len(form) > 1])


_FORMS: Final = {one: lru_cache(maxsize=1 << 16)(partial(_forms, language=one)) for one in _LANGUAGES}
"""The terms of a word, kept by language."""


def surfaces(text: str) -> dict[str, str]:
    """For each term of a text the word that it stands for, as it is written there first, in lower case."""
    head = text[:MAX_CHARS]
    language = language_of(head)
    found: dict[str, str] = {}
    for run in runs(head):
        for form in run_terms(run, language):
            found.setdefault(form, run.casefold())
    return found


@lru_cache(maxsize=8_192)
def subject_terms(text: str) -> tuple[str, ...]:
    """The words of a text that can tell what it is about, in order and with repeats.

    No dates, amounts, units, forms of address, greetings or small talk: they would pull matters together.
    Stemmed by the language of the text; long words count by their beginning, as compounds share it.
    """
    head = text[:MAX_CHARS]
    language = language_of(head)
    return tuple([form for run in _uncounted(head) for form in word_subjects(run, language)])


@lru_cache(maxsize=8_192)
def subject_set(text: str) -> frozenset[str]:
    """The subject terms of a text, each once."""
    return frozenset(subject_terms(text))


def subject_words(text: str) -> dict[str, str]:
    """For each subject term of a text the word that it stands for, as it is written there first."""
    head = text[:MAX_CHARS]
    language = language_of(head)
    found: dict[str, str] = {}
    for run in _uncounted(head):
        for form in word_subjects(run, language):
            found.setdefault(form, run)
    return found


def _uncounted(text: str) -> Iterator[str]:
    """The words of a text without metres that are counted: "four metres" is a measure, "the meter" may be
    what it is about."""
    before = ""
    for run in runs(text):
        counted = run[:1] in "Mm" and fold(run) in _METRES and (before.isdigit() or fold(before) in MEASURES)
        if not counted:
            yield run
        before = run


@lru_cache(maxsize=1 << 16)
def word_subjects(word: str, language: Language) -> tuple[str, ...]:
    """The subject terms of a word in a text of this language."""
    if fold(word).replace("’", "'") in NOT_TELLING:
        return ()
    return tuple([_subject(part, language) for part in pieces(word) if _may_tell(part)])


def _may_tell(word: str) -> bool:
    if (
        word in NOT_TELLING
        or len(word) > _LONGEST
        or (word.isascii() and len(word) < 3)
        or not any(map(str.isalpha, word))
    ):
        return False
    return _MEASURED.fullmatch(word) is None


def _subject(word: str, language: Language) -> str:
    return stem(word[:_PREFIX] if len(word) >= _COMPOUND and word.isalpha() else word, language)


def commonness_of(term: str) -> float:
    """How common the words of a subject term are at large: the logarithm of how often in a billion words."""
    return _at_large().get(term, UNLISTED)


@lru_cache(maxsize=1)
def _at_large() -> Mapping[str, float]:
    return commonness(lambda word, language: [_subject(word, language)] if len(word) > 2 else [])


def is_filler(term: str) -> bool:
    """A word of small talk: it says little about what a conversation is about."""
    return term in FILLER


def _spelled(words: str) -> frozenset[str]:
    """Words as they are written, and folded as memory folds them."""
    return frozenset(words.split()) | frozenset(map(fold, words.split()))


_SMALL_TALK: Final = frozenset(map(fold, _FILLER.split())) - FUNCTION_WORDS
FUNCTION: Final = FUNCTION_WORDS | frozenset(("für", "können", "über"))
MEASURES: Final = _spelled(_MEASURES)
_METRES: Final = frozenset(("meter", "meters", "metern", "metre", "metres"))
FILLER: Final = _SMALL_TALK | frozenset(
    form
    for language in _LANGUAGES
    for word in _SMALL_TALK
    for form in run_terms(word, language)
    if len(word) - len(form) <= 1
)
"""Terms of small talk, in either language."""
NOT_TELLING: Final = FUNCTION | _spelled(_FILLER) | MEASURES | _spelled(_COMMON)
"""Words that stand in talk about anything."""
