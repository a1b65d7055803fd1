"""Words as the board compares them: folded, without function words, lightly stemmed.

Small on purpose: it sorts conversations, it does not search. The search index has its own, larger one.
`terms` are the words of a text; `subject_terms` are those of them that can tell one matter from another.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache
from typing import Any, Final, Literal

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+(?:['’-][^\W_{_CJK}]+)*")
_HAN = re.compile(rf"[{_CJK}]")
_LONGEST: Final = 48
_COMPOUND: Final = 9
_PREFIX: Final = 6
_LANGUAGE_HEAD: Final = 1_000
_MEASURED: Final = re.compile(r"\d+[^\W\d_]{1,3}")
MAX_CHARS: Final = 8_000

Language = Literal["english", "german"]

_FUNCTION = """
a about after again all also am an and any are as at be because been before being between both but by can
cannot could did do does doing done down during each few for from further get gets getting got had has have
having he her here hers herself him himself his how i if in into is it its itself just let like me might more
most much must my myself no nor not now of off on once only or other our ours ourselves out over own same
shall she should so some such than that the their theirs them themselves then there these they this those
through to too under until up upon us very was we were what when where which while who whom whose why will
with would yet you your yours yourself yourselves aber alle als also am an auch auf aus bei bin bis da damit
dann das dass dein dem den denn der des dich die dies diese dieser dieses dir doch dort du durch ein eine
einem einen einer eines er es etwas für gegen haben hat hatte hier ich ihm ihn ihr ihre im in ins ist ja jede
jetzt kann kein keine können man mein meine mich mir mit muss nach nicht noch nun nur ob oder ohne sehr sein
seine sich sie sind so soll über um und uns unser unter vom von vor war waren was weil wenn wer werden wie
wieder wir wird wo zu zum zur
"""
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
day days tag tage tagen week weeks woche wochen month months monat monate monaten year years jahr jahre
jahren kg kilo kilos km cm mm ml mb gb tb kb ms gram grams gramm litre litres liter metres kilometer
kilometern kilometers miles grad degrees below above over under around about unter über etwa rund monday
tuesday wednesday thursday friday saturday sunday mondays tuesdays wednesdays thursdays fridays saturdays
sundays montag montags dienstag dienstags mittwoch mittwochs donnerstag donnerstags freitag freitags samstag
samstags sonntag sonntags january february march april may june july august september october november
december januar februar märz mai juni juli oktober dezember one two three four five six seven eight nine ten
eleven twelve eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf first third erste ersten zweite
zweiten dritte dritten half halb
"""
_COMMON = """
mr mrs ms dr prof herr herrn frau firma hello hi dear welcome congratulations glückwunsch noted notiert
gerne gern abend abends morgens nachts nacht mittags vormittag nachmittag evening afternoon noon midnight
soll sollen sollte könnte könnten müssen müsste brauche brauchen braucht komme kommt kommen gehe geht gehen
gibt geben nimm nehme nehmen nimmt liegt liegen steht stehen heißt kostet kosten läuft laufen bleibt bleiben
macht mache lass lassen dafür davon daran dabei darauf darin dazu deshalb trotzdem bereits bisher erst
ungefähr höchstens mindestens wichtig richtig stimmt wäre würde würden hätte habe hatten wurde wurden worden
sagt sagte sagen gesagt eher lieber beide beiden jeweils insgesamt zusammen ihre ihrem ihren ihrer ihnen
seine seinem seinen seiner meinem meinen meiner deine deinen unsere unserem unseren unserer diesem diesen
welche welcher welches wann warum wohin seit zwischen während trotz wegen statt nächste nächsten nächster
letzte letzten letztes neue neuen neuer neues alte alten ganz ganze ganzen viele wenig weniger alles nichts
niemand jemand ab beim ins dran weg los her hin nämlich sowieso sonst immer nie oft gleich bald später
früher jetzt gerade wohl zurzeit will wollen wollte kannst können dürfen darf schreibe schreiben schicke
schicken geschickt bekommen bekommt habt bitte fehlt passt klingt schön frage fragen gefragt says tell told
asked asking wants needs gets goes comes cost costs paid pay price priced moved moves takes puts date dates
number list until since already yet drafted added changed sent written write called open opened closed free
next last same both either without instead against per also maybe perhaps done fixed set sets setting let
lets entwurf termin frist liste datum nummer preis
"""
_ENGLISH_MARKS = """
the and is of to we it for a in on i my you at be with are that this was have can do what how
"""
_GERMAN_MARKS = """
der die das und ist den ich wir auf für nicht ein eine mit im zu es auch bei noch wie dem von am hat sind
kann du mir wird soll
"""


@lru_cache(maxsize=8_192)
def terms(text: str) -> tuple[str, ...]:
    """The words of a text that carry meaning, in order and with repeats; long texts count by their head.

    The texts around an exchange are the same for the next one, so they are kept for a while.
    """
    return tuple([form for _, form in _read(text)])


def surfaces(text: str) -> dict[str, str]:
    """For each term of a text the word that it stands for, as it is written there first."""
    found: dict[str, str] = {}
    for word, form in _read(text):
        found.setdefault(form, word)
    return found


@lru_cache(maxsize=512)
def _read(text: str) -> tuple[tuple[str, str], ...]:
    """Each word with the terms that it stands for; kept for who asks for one and then for the other."""
    folded = unicodedata.normalize("NFKC", text[:MAX_CHARS]).casefold().replace("’", "'")
    return tuple([(word, form) for word in _WORD.findall(folded) for form in _forms(word)])


@lru_cache(maxsize=8_192)
def subject_terms(text: str) -> tuple[str, ...]:
    """The words of a text that can tell what it is about, in order and with repeats.

    No dates, amounts, units, forms of address, greetings or small talk: they would pull matters together.
    Stemmed by the language of the text; long words count by their beginning, as compounds share it.
    """
    folded = unicodedata.normalize("NFKC", text[:MAX_CHARS]).casefold().replace("’", "'")
    language = language_of(folded)
    return tuple([form for word in _WORD.findall(folded) for form in word_subjects(word, language)])


def subject_words(text: str) -> dict[str, str]:
    """For each subject term of a text the word that it stands for, as it is written there first."""
    found: dict[str, str] = {}
    language = language_of(text.casefold())
    for word in _WORD.findall(unicodedata.normalize("NFKC", text[:MAX_CHARS])):
        for form in word_subjects(word.casefold().replace("’", "'"), language):
            found.setdefault(form, word)
    return found


def language_of(folded: str) -> Language:
    """German where its commonest words outnumber those of English."""
    words = folded[:_LANGUAGE_HEAD].split()
    german = sum(map(_GERMAN.__contains__, words))
    return "german" if german > sum(map(_ENGLISH.__contains__, words)) else "english"


@lru_cache(maxsize=20_000)
def word_subjects(word: str, language: Language) -> tuple[str, ...]:
    """The subject terms of a folded word in a text of this language."""
    if _HAN.match(word):
        return tuple(_pairs(word))
    if word in NOT_TELLING or len(word) > _LONGEST:
        return ()
    parts = word.split("-") if "-" in word else (word,)
    return tuple([_subject(part.removesuffix("'s"), language) for part in parts if _may_tell(part)])


def _may_tell(word: str) -> bool:
    if word in NOT_TELLING or len(word) < 3 or not any(map(str.isalpha, word)):
        return False
    return _MEASURED.fullmatch(word) is None


def _subject(word: str, language: Language) -> str:
    if not word.isalpha():
        return word
    head = word[:_PREFIX] if len(word) >= _COMPOUND else word
    stemmed: str = _stemmer(language).stemWord(head)
    return stemmed


@cache
def _stemmer(language: Language) -> Any:
    import Stemmer

    return Stemmer.Stemmer(language, 0)


def is_filler(term: str) -> bool:
    """A word of small talk: it says little about what a conversation is about."""
    return term in FILLER


@lru_cache(maxsize=20_000)
def _forms(word: str) -> list[str]:
    if _HAN.match(word):
        return _pairs(word)
    if word in FUNCTION or len(word) > _LONGEST:
        return []
    if word in _FILLER_WORDS:
        return [stem(word)]
    parts = word.split("-") if "-" in word else [word]
    return [stem(part) for part in parts if len(part) > 1 and part not in FUNCTION]


def _pairs(run: str) -> list[str]:
    return [run] if len(run) < 2 else [run[i : i + 2] for i in range(len(run) - 1)]


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """One form for the commonest endings of English; what it makes need not be a word."""
    word = word.removesuffix("'s")
    if len(word) < 4 or not word.isascii() or not word.isalpha():
        return word
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith(("sses", "shes", "ches", "xes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            if word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    return word.removesuffix("e") if len(word) > 4 else word


_ENGLISH: Final = frozenset(_ENGLISH_MARKS.split())
_GERMAN: Final = frozenset(_GERMAN_MARKS.split())
FUNCTION: Final = frozenset(_FUNCTION.split())
MEASURES: Final = frozenset(_MEASURES.split())
_FILLER_WORDS: Final = frozenset(_FILLER.split())
FILLER: Final = frozenset(stem(word) for word in _FILLER_WORDS)
NOT_TELLING: Final = FUNCTION | _FILLER_WORDS | MEASURES | frozenset(_COMMON.split())
"""Words that stand in talk about anything."""
