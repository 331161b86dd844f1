"""Word lists of the rules; data only."""

from __future__ import annotations

import re

_PEOPLE = (
    "wife husband partner spouse girlfriend boyfriend fiancé fiancée fiance fiancee mother father "
    "mom mum dad sister brother son daughter child baby kid twin aunt uncle cousin niece nephew "
    "grandmother grandfather grandma grandpa granddaughter grandson friend best-friend colleague "
    "coworker co-worker boss manager mentor neighbour neighbor landlord roommate flatmate teacher "
    "doctor dentist therapist lawyer client customer assistant supervisor professor student dog "
    "cat puppy kitten rabbit bunny hamster parrot horse turtle goldfish pet tortoise bird "
    "eldest youngest oldest co-founder cofounder mother-in-law father-in-law stepmother "
    " stepfather stepson stepdaughter"
)
PEOPLE = _PEOPLE.split()
_THINGS = (
    "project company startup start-up product app application team band website blog podcast game "
    "book boat car bike house club shop restaurant school university library repo repository "
    "service channel newsletter robot server"
)
THINGS = _THINGS.split()
_SINGLE = (
    "wife husband partner spouse girlfriend boyfriend fiance fiancee mother father mom mum dad "
    "boss manager landlord supervisor company"
)
ONE_AT_A_TIME = frozenset(_SINGLE.split())
"""Relations with one person at a time: another name means another person."""

STATES = "married|single|divorced|engaged|widowed|pregnant|retired|unemployed|separated"
DIETS = "vegetarian|vegan|pescatarian|pescetarian|omnivore|gluten-free|teetotal|kosher|halal"
JOBS = (
    r"[\w-]*(?:eer|ist|ician|yst|cher|wyer|ctor|tor|ner|per|ger|ver|ker|ter|ian)|doctor|nurse|lawyer|"
    r"pilot|chef|cook|clerk|judge|poet|actress|professor|surgeon|dean|student|architect|scientist"
)
ATTRIBUTES = (
    "e-?mail(?: address)?|phone(?: number)?|time ?zone|nationality|height|weight|blood type|major|"
    "website|username|handle|github|twitter|pronouns|star sign|zodiac sign|religion|shoe size|"
    "address|surname|last name|middle name|nickname|mother tongue|currency|locale"
)
NATIONS = (
    "american|british|english|scottish|irish|welsh|german|french|spanish|portuguese|italian|dutch|"
    "belgian|swiss|austrian|danish|swedish|norwegian|finnish|icelandic|polish|czech|slovak|"
    "hungarian|romanian|bulgarian|greek|turkish|russian|ukrainian|serbian|croatian|slovenian|"
    "canadian|mexican|brazilian|argentinian|chilean|colombian|peruvian|cuban|chinese|japanese|"
    "korean|vietnamese|thai|indian|pakistani|bangladeshi|indonesian|malaysian|filipino|australian|"
    "egyptian|moroccan|nigerian|kenyan|ethiopian|ghanaian|israeli|iranian|iraqi|lebanese|syrian"
)
LANGUAGES = (
    rf"(?:{NATIONS}|latin|arabic|hebrew|hindi|urdu|bengali|mandarin|cantonese|persian|farsi|catalan|"
    r"basque|galician|esperanto|swahili|tamil|estonian|latvian|lithuanian)"
)
POINTS_BACK = re.compile(
    r"(?:it|this|that|these|those|them|you|your|him|her|how|what|when|where|why|who|"
    r"to (?:know|see|ask|have|get)|"
    r"the (?:first|second|third|last|other|idea|way|option|answer|result|look|sound|one|new|same)|"
    r"everything|nothing|something|one|here|there|he|she|they|we|i)\b",
    re.IGNORECASE,
)
"""References to something said before, without which a memory would be meaningless."""
NO_NAME = re.compile(
    r"(?:ok|okay|done|sorry|back|here|ready|fine|happy|glad|good|well|not|sure|afraid|in|on|at|so|"
    r"very|just|still|also|a|an|the|to|going|trying|using|[A-Z]{2})\b$",
    re.IGNORECASE,
)
"""Capitalized words after "I am" that are no name."""
TROUBLE = re.compile(
    r"\b(?:errors?|warnings?|fail\w*|crash\w*|issues?|problems?|questions?|bugs?|exceptions?)\b",
    re.IGNORECASE,
)
"""Words of a statement about work at hand rather than about its speaker."""

MILESTONES = (
    r"got my (?:[\w-]+ )?(?:degree|diploma|licen[cs]e|belt|visa|citizenship)|"
    r"got (?:married|divorced|engaged|promoted|fired|laid off|hired|accepted|pregnant|robbed)|"
    r"graduated|resigned|retired|married|bought|sold|won|founded|celebrated|gave birth|enrolled|"
    r"adopted an? (?:\w+ )?(?:dog|cat|child|baby|puppy|kitten)|proposed to|inherited|emigrated|"
    r"signed (?:the|an?|my) (?:lease|contract|deal|papers)|visited (?-i:[A-Z])\w+|climbed|"
    r"pass(?:ed)? (?:the|my|an?) (?:\w+ )?(?:exam|bar|course|driving test)|was (?:promoted|fired|"
    r"hired|laid off|diagnosed|accepted|elected)|ran (?:an?|my first) (?:half )?(?:marathon|race)|"
    r"became|moved (?:in|out)|broke (?:my|up)|lost my|"
    r"had (?:a baby|surgery|an accident|an operation)"
)
"""Events worth remembering with or without a date."""
DEEDS = (
    r"closed on|passed away|"
    r"launched|shipped|published|visited|signed|adopted|passed|got|had|went|started|began|finished|completed|failed|met|lost|flew|travell?ed|attended|"
    r"presented|booked|ran|broke|received|submitted|deployed|migrated|released|applied|took|made|"
    r"spent|came|returned|left|saw|gave|spoke|held|joined|built|fixed|drove|hiked|cycled|sent|paid|"
    r"ordered|installed|learn(?:ed|t)|planted|hosted|cancel(?:l)?ed|postponed|watched|read|wrote"
)
"""Events worth remembering only with a date."""
OCCASIONS = (
    "interview|flight|exam|wedding|deadline|appointment|meeting|launch|surgery|trip|anniversary|"
    "conference|presentation|move|party|vacation|holiday|concert|marathon|graduation|release|"
    "due date|operation|funeral|visit|lease|contract|visa|checkup|check-up"
)
IMPERATIVES = (
    "read|run|rerun|check|use|clear|restart|tag|open|look|ask|make|write|add|call|try|update|delete|"
    "wait|search|list|test|commit|push|build|squash|sign|rebase|include|say|start|end|put|send|show|"
    "format|explain|give|mention|apologi[sz]e|answer|reply|respond|keep|do|refer|speak|assume|"
    "suggest|deploy|install|verify|review|back up|save|merge|pull|fetch|stop|avoid|confirm|lint"
)
