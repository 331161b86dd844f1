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
GROUPS = (
    "kids",
    "children",
    "parents",
    "in-laws",
    "grandparents",
    "siblings",
    "twins",
    "family",
    "dogs",
    "cats",
    "daughters",
    "sons",
    "brothers",
    "sisters",
    "friends",
)
"""Several people or pets at once."""
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

STATES = (
    "married|single|divorced|divorcing|engaged|widowed|pregnant|expecting (?:an? (?:baby|child|"
    "boy|girl)|twins)|retired|unemployed|separated|"
    "self-employed|between jobs|out of work|on maternity leave|on paternity leave|on parental "
    "leave|"
    "on sick leave|a freelancer|freelancing"
)
DIETS = (
    "vegetarian|vegan|pescatarian|pescetarian|flexitarian|omnivore|gluten-free|dairy-free|teetotal|"
    "teetotall?er|kosher|halal|plant-based|keto|low-carb"
)
BODY = (
    "left-handed|right-handed|ambidextrous|colou?r[ -]?blind|short-sighted|near-?sighted|"
    "far-?sighted|"
    "deaf|hard of hearing|blind|partially sighted|dyslexic|autistic|neurodivergent|diabetic|"
    "asthmatic|"
    "epileptic|coeliac|celiac|an(?:a)?emic|bipolar|hyperactive|sober|in recovery|in a wheelchair|"
    r"wheelchair user|[\w-]*exic"
)
ILLNESSES = (
    "disease|syndrome|disorder|asthma|diabetes|migraines?|arthritis|epilepsy|adhd|ocd|ptsd|pcos|"
    "ibs|"
    "copd|autism|anxiety|an(?:a)?emia|eczema|psoriasis|hypertension|high blood pressure|tinnitus|"
    "insomnia|endometriosis|fibromyalgia|lupus|parkinson's|scoliosis|crohn's|pacemaker|"
    "bad (?:knees?|back|hip|shoulder)|(?-i:MS|ADD|HIV)"
)
FAITHS = (
    "muslim|jewish|christian|catholic|protestant|orthodox|hindu|buddhist|sikh|mormon|quaker|"
    "atheist|"
    "agnostic|jehovah's witness"
)
BUSINESSES = (
    "bakery|shop|store|company|agency|restaurant|caf[eé]|business|studio|farm|clinic|practice|"
    "salon|"
    "hotel|hostel|garage|gym|start-?up|firm|nursery|school|bar|pub|brewery|vineyard|gallery|label|"
    "channel|blog|podcast|charity|nonprofit|bookshop|bookstore|workshop|warehouse|department|"
    "franchise|"
    "newsletter|guesthouse|b&b|team of"
)
RELATIVES = (
    "wife|husband|partner|spouse|girlfriend|boyfriend|fianc[eé]e?|brothers?|sisters?|siblings?|"
    "kids?|"
    "child|children|sons?|daughters?|twins|bab(?:y|ies)|toddlers?|grandchildren|grandsons?|"
    "granddaughters?|stepsons?|stepdaughters?|nieces?|nephews?|dogs?|cats?|pets?|rabbits?|"
    "hamsters?|"
    "horses?|parrots?"
)
JOBS = (
    r"[\w-]*(?:eer|ist|ician|yst|cher|wyer|ctor|tor|ner|per|ger|ver|ker|ter|ian)|doctor|nurse|"
    r"lawyer|"
    r"pilot|chef|cook|clerk|judge|poet|actress|professor|surgeon|dean|student|architect|scientist|"
    "accountant|assistant|consultant|attendant|locksmith|blacksmith|midwife|vet|mechanic|plumber|"
    "builder|welder|barber|dev|freelancer|contractor|intern|apprentice|trainee|carer|housewife|"
    "househusband|undergrad(?:uate)?|postdoc|entrepreneur|founder|co-founder|ceo|cto|cfo|model|"
    "translator|interpreter|novelist|officer|paramedic|veteran|priest|pastor|imam|rabbi|monk|nun|"
    "waitress|sailor|carpenter|tailor|hairdresser|broker|realtor|lecturer|tutor|civil servant|"
    "social worker|soldier|guard|shepherd|butcher|optician|landlord|landlady|director|"
    "(?:stay-at-home|single|working) (?:mom|mum|dad|mother|father|parent)"
)
NO_JOB = (
    "loser|winner|monster|disaster|lover|hater|goner|stickler|sucker|stranger|customer|teenager|"
    "matter|number|character|sister|mother|father|brother|daughter|believer|fighter|morning person|"
    "sister|potter head|newcomer|outsider|foreigner|early|late|slow|fast|quick|heavy|light|"
    "terrible|"
    "bad|big|huge|total|complete|little|better|clever|bit|corner|letter|center|counter|over|after|"
    "never|ever|however|whatever|another|other|rather|either|former"
)
"""Words that end like jobs."""
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
    "egyptian|moroccan|algerian|tunisian|sudanese|south african|sri lankan|nepali|malay|"
    "singaporean|"
    "taiwanese|cambodian|mongolian|kazakh|uzbek|georgian|armenian|azerbaijani|afghan|jordanian|"
    "saudi|"
    "emirati|venezuelan|ecuadorian|bolivian|uruguayan|paraguayan|costa rican|jamaican|haitian|"
    "dominican|puerto rican|estonian|latvian|lithuanian|belarusian|albanian|bosnian|macedonian|"
    "maltese|"
    "luxembourgish|new zealander|kiwi|senegalese|ugandan|tanzanian|zimbabwean|"
    "egyptian|moroccan|nigerian|kenyan|ethiopian|ghanaian|israeli|iranian|iraqi|lebanese|syrian"
)
LANGUAGES = (
    rf"(?:{NATIONS}|latin|arabic|hebrew|hindi|urdu|bengali|mandarin|cantonese|persian|farsi|"
    rf"catalan|"
    r"basque|galician|esperanto|swahili|tamil|estonian|latvian|lithuanian)"
)
GENERIC = (
    "sea|ocean|beach|mountains?|countryside|outdoors|city|theatre|theater|opera|cinema|ballet|"
    "gym|snow|rain|"
    "sun|cold|heat|dark|winter|summer|piano|violin|guitar|cello|drums|rain|news|dentist|"
    "beatles|past|future"
)
"""Nouns that mean the same to everybody with "the" before them."""
POINTS_BACK = re.compile(
    r"(?:it|this|that|these|those|them|you|your|him|her|how|what|when|where|why|who|"
    r"to (?:know|see|ask|have|get)|"
    rf"the (?!(?:{GENERIC})\b)(?-i:[a-z])[a-z]+$|"
    r"the (?:first|second|third|last|other|idea|way|option|answer|result|look|sound|one|new|same)|"
    r"everything|nothing|something|one|here|there|he|she|they|we|i)\b",
    re.IGNORECASE,
)
"""References to something said before, without which a memory would be meaningless."""
NO_NAME = re.compile(
    r"(?:ok|okay|done|sorry|back|here|ready|fine|happy|glad|good|well|not|sure|afraid|in|on|at|so|"
    r"very|just|still|also|a|an|the|to|going|trying|using|same|nothing|new|right|over|out|all|"
    r"everything|something|anything|me|see|look|stuck|beginner|newbie|it|that|this|up|down|stop|"
    r"start|user|"
    r"student|welcome|stay|wait|so far|from|yes|no|[A-Z]{2})$",
    re.IGNORECASE,
)
"""Capitalized words after "I am" that are no name."""
TROUBLE = re.compile(
    r"\b(?:errors?|warnings?|fail\w*|crash\w*|issues?|problems?|questions?|bugs?|exceptions?)\b",
    re.IGNORECASE,
)
"""Words of a statement about work at hand rather than about its speaker."""

IRREGULAR_PAST = (
    "sat|sent|forgot|saw|did|got|had|knew|said|thought|made|took|came|went|was|were|gave|found|"
    "told|"
    "felt|kept|left|met|heard|brought|bought|wrote|ran|read it|lost|won|put|let|held|stood|"
    "understood|"
    "meant|began|spoke|broke|chose|drove|ate|fell|grew|paid|slept|spent|woke|wore|caught|taught"
)
"""Past forms without "-ed": what was done once is no habit."""
NOT_LASTING = re.compile(
    r"\b(?:be|get|come|check|look|try|see|send|talk|call|ask|tell|let|do|think|hear(?:ing)?|"
    r"sleep|bed|"
    r"wait|report|text|email|message|write (?:back|you)|bring|pick|finish up|"
    r"script|code|function|command|file|query|test|branch|build|line|page|list|table|version|"
    r"output|result|answer|reply|draft|prompt|email|message|idea|mistake|typo|feeling|chance|"
    r"look|minute|moment|second|bit|lot)\b",
    re.IGNORECASE,
)
"""Words of a statement about the moment or about work at hand, which matters to nobody later."""
LIFE = (
    r"(?:signed up|enrolled|registered|volunteered|auditioned|applied|interviewed) (?:for|to|at|"
    r"with|in)|"
    r"(?:took|taken) up|(?:got|came|returned)(?: back)? from (?:an?|the|my|our|(?-i:[A-Z]))|"
    r"started (?:learning|taking|playing|running|writing|painting|swimming|training|volunteering|"
    r"dating|seeing|therapy|my own|an? (?:new )?(?:course|class|job|business|company|band|blog|"
    r"diet|"
    r"family|garden|podcast|book|hobby|degree))|"
    r"(?:attended|visited|hosted|organi[sz]ed|performed|won|adopted|painted|published|hiked|"
    r"climbed|"
    r"camped|travell?ed|toured|planted|knitted|sewed|baked|restored|renovated|rescued|raised)|"
    r"(?:went|gone) \w+ing\b|(?:went|been|gone) (?:(?:on|to) (?:an?|my|the|our|(?-i:[A-Z])))|"
    r"(?:bought|got|made|built|finished|completed|wrote|lost|met|hired|joined|opened|"
    r"inherited|sold|crashed|broke|injured|hurt|sprained|learned|learnt|discovered|grew) "
    r"(?:an?|my|our|the|two|three|four|five|six|some|how|\d+)"
)
"""Things people do that are worth remembering without a date too, if it is said what."""
PLANS = (
    r"(?:am|are|have been) (?:planning (?:an?|my|our|to)\b|training|saving(?: up)?|preparing|"
    r"learning|applying|studying|"
    r"hoping|looking forward|signed up|registered|enrolled|taking|writing|building|restoring|"
    r"renovating|researching|volunteering|expecting|dating|seeing a|moving|working towards|"
    r"working on (?:my|an?))|"
    r"(?:want|plan|hope|intend|aim|dream|am planning|am hoping|would love) (?:to|of) (?:become|"
    r"becoming|learn|visit|travel|open|retire|emigrate|adopt|run an?|move|study|go back|start|buy|"
    r"have (?:kids|children)|write a book|build a|lose weight|quit|get (?:married|into|my))"
)
"""Plans and things people are busy with for longer than a moment."""

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
    r"launched|shipped|published|visited|signed|adopted|passed|got|had|went|started|began|"
    r"finished|completed|failed|met|lost|flew|travell?ed|attended|"
    r"presented|booked|ran|broke|received|submitted|deployed|migrated|released|applied|took|made|"
    r"spent|came|returned|left|saw|gave|spoke|held|joined|built|fixed|drove|hiked|cycled|sent|paid|"
    r"ordered|installed|learn(?:ed|t)|planted|hosted|cancel(?:l)?ed|postponed|watched|read|wrote"
)
"""Events worth remembering only with a date."""
OCCASIONS = (
    "interview|flight|exam|wedding|deadline|appointment|meeting|launch|surgery|trip|anniversary|"
    "conference|presentation|move|party|vacation|holiday|concert|marathon|graduation|release|"
    "due date|operation|funeral|visit|lease|contract|visa|checkup|check-up|recital|tournament|"
    "match|"
    "ceremony|christening|baptism|reunion|workshop|retreat|course|class"
)
IMPERATIVES = (
    "read|run|rerun|check|use|clear|restart|tag|open|look|ask|make|write|add|call|try|update|"
    "delete|"
    "wait|search|list|test|commit|push|build|squash|sign|rebase|include|say|start|end|put|send|"
    "show|"
    "format|explain|give|mention|apologi[sz]e|answer|reply|respond|keep|do|refer|speak|assume|"
    "suggest|deploy|install|verify|review|back up|save|merge|pull|fetch|stop|avoid|confirm|lint"
)

ALTERNATIVES = (
    "tea coffee espresso matcha cappuccino decaf cocoa",
    "vim neovim emacs nano pycharm",
    "linux windows macos ubuntu debian fedora",
)
"""Groups of alternatives: who says "now" of one has given up another of the same group."""
