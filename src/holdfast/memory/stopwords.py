"""Function words that say nothing about what a text is about, folded as `folding.fold` folds."""

from __future__ import annotations

from holdfast.memory.folding import fold

_ENGLISH = """
a about after again all also am an and any are as at be because been before being between both but by
can could did do does doing done down during each few for from further get gets getting got had has have
having he her here hers herself him himself his how i if in into is it its itself just let like me might
more most much must my myself no nor not now of off on once only or other our ours ourselves out over own
same shall she should so some such than that the their theirs them themselves then there these they this
those through to too under until up upon us very was we were what when where which while who whom whose
why will with would yes yet you your yours yourself yourselves cannot
"""

_GERMAN = """
aber alle allem allen aller alles als also am an ander andere anderem anderen anderer anderes auch auf aus
bei beim bin bis bist da damit dann das dass dein deine deinem deinen deiner dem den denn der deren des
dessen dich die dies diese diesem diesen dieser dieses dir doch dort du durch ein eine einem einen einer
eines er es etwas euch euer eure für gab gegen gewesen hab habe haben hat hatte hatten hier hin hinter ich
ihm ihn ihnen ihr ihre ihrem ihren ihrer im in ins ist ja jede jedem jeden jeder jedes jene jetzt kann
kein keine keinem keinen keiner können konnte mal man manche mein meine meinem meinen meiner mich mir mit
muss musste nach nicht nichts noch nun nur ob oder ohne sehr sein seine seinem seinen seiner seit sich sie
sind so solche soll sollte sondern sonst über um und uns unser unsere unter vom von vor wann war waren
warum was weil welche welchem welchen welcher welches wenn wer werde werden wie wieder will wir wird wirst
wo wurde wurden zu zum zur zwar zwischen
"""

_WRITER = "i me my mine myself we us our ours ich mich mir mein meine meinen wir uns unser unsere"
_HEARER = "you your yours yourself yourselves du dich dir dein deine deinen euch euer eure"

ENGLISH = frozenset(_ENGLISH.split())
GERMAN = frozenset(map(fold, _GERMAN.split()))
FUNCTION_WORDS = ENGLISH | GERMAN
"""Those of either language."""
WRITER = frozenset(_WRITER.split())
HEARER = frozenset(_HEARER.split())
"""What a text calls who writes it and whom it is written to."""
