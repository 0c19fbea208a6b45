"""The words of the English-Marathi grammar, with every form the grammar needs.

Forms that agree are written as four: masculine, feminine, neuter and feminine plural. The other
plurals look like one of these: masculine plural like neuter, neuter plural like feminine.
"""

from typing import NamedTuple

Forms = tuple[str, ...]  # four forms that agree, or one that never changes


class Person(NamedTuple):
    """Somebody who acts; `oblique` is the stem before -ने, -ला, -चा and -कडे.

    `en_plural` and `plural` differ where Marathi honours one person with the plural.
    """

    en: str
    mr: str
    oblique: str
    gender: str
    en_plural: bool = False
    plural: bool = False


class Profession(NamedTuple):
    """What somebody is; Marathi forms: man, woman, men, women ("" where it has none)."""

    en: str
    en_plural: str
    forms: tuple[str, str, str, str]
    adjectives: str


class Thing(NamedTuple):
    """A noun and the adjectives that suit it; `plural` is "" for what is not counted."""

    en: str
    en_plural: str
    mr: str
    plural: str
    gender: str
    adjectives: str


class Verb(NamedTuple):
    """English base, -s, past and -ing; Marathi before -तो, participle in -त, and before -ला."""

    en: str
    en_third: str
    en_past: str
    en_ing: str
    habitual: str
    participle: str
    perfective: str
    objects: str


DEMONSTRATIVES: dict[str, Forms] = {
    "this": ("हा", "ही", "हे", "या"),
    "that": ("तो", "ती", "ते", "त्या"),
}
DEMONSTRATIVE_PLURALS = {"this": "these", "that": "those"}
MY: Forms = ("माझा", "माझी", "माझे", "माझ्या")
GENITIVE: Forms = ("चा", "ची", "चे", "च्या")
WAS: Forms = ("होता", "होती", "होते", "होत्या")
WAS_NOT: Forms = ("नव्हता", "नव्हती", "नव्हते", "नव्हत्या")
PERFECTIVE: Forms = ("ला", "ली", "ले", "ल्या")

ADJECTIVES: dict[str, Forms] = {
    "good": ("चांगला", "चांगली", "चांगले", "चांगल्या"),
    "big": ("मोठा", "मोठी", "मोठे", "मोठ्या"),
    "old": ("जुना", "जुनी", "जुने", "जुन्या"),
    "easy": ("सोपा", "सोपी", "सोपे", "सोप्या"),
    "white": ("पांढरा", "पांढरी", "पांढरे", "पांढऱ्या"),
    "black": ("काळा", "काळी", "काळे", "काळ्या"),
    "yellow": ("पिवळा", "पिवळी", "पिवळे", "पिवळ्या"),
    "green": ("हिरवा", "हिरवी", "हिरवे", "हिरव्या"),
    "alone": ("एकटा", "एकटी", "एकटे", "एकट्या"),
    "small": ("लहान",),
    "new": ("नवीन",),
    "red": ("लाल",),
    "beautiful": ("सुंदर",),
    "clean": ("स्वच्छ",),
    "long": ("लांब",),
    "tall": ("उंच",),
    "sweet": ("गोड",),
    "hot": ("गरम",),
    "cold": ("थंड",),
    "expensive": ("महाग",),
    "cheap": ("स्वस्त",),
    "difficult": ("कठीण",),
    "clever": ("हुशार",),
    "honest": ("प्रामाणिक",),
    "kind": ("दयाळू",),
    "lazy": ("आळशी",),
    "poor": ("गरीब",),
    "rich": ("श्रीमंत",),
    "young": ("तरुण",),
    "famous": ("प्रसिद्ध",),
    "happy": ("आनंदी",),
    "sad": ("दुःखी",),
    "ill": ("आजारी",),
}
CHARACTER = "tall clever honest kind lazy poor rich"
MOODS = f"{CHARACTER} happy sad ill alone"

NAMES = (
    Person("Rahul", "राहुल", "राहुल", "m"),
    Person("Amit", "अमित", "अमित", "m"),
    Person("Sachin", "सचिन", "सचिन", "m"),
    Person("Vijay", "विजय", "विजय", "m"),
    Person("Anil", "अनिल", "अनिल", "m"),
    Person("Ganesh", "गणेश", "गणेश", "m"),
    Person("Sita", "सीता", "सीता", "f"),
    Person("Meena", "मीना", "मीना", "f"),
    Person("Asha", "आशा", "आशा", "f"),
    Person("Priya", "प्रिया", "प्रिया", "f"),
    Person("Kavita", "कविता", "कविता", "f"),
    Person("Gauri", "गौरी", "गौरी", "f"),
)
PRONOUNS = (Person("he", "तो", "त्या", "m"), Person("she", "ती", "ति", "f"))
KIN = (
    Person("my mother", "माझी आई", "माझ्या आई", "f"),
    Person("my father", "माझे वडील", "माझ्या वडिलां", "m", plural=True),
    Person("my brother", "माझा भाऊ", "माझ्या भावा", "m"),
    Person("my sister", "माझी बहीण", "माझ्या बहिणी", "f"),
    Person("my grandmother", "माझी आजी", "माझ्या आजी", "f"),
)
SIBLINGS = (KIN[2], KIN[3])
PEOPLE = (
    Person("the boy", "मुलगा", "मुला", "m"),
    Person("the girl", "मुलगी", "मुली", "f"),
    Person("the man", "माणूस", "माणसा", "m"),
    Person("the woman", "बाई", "बाई", "f"),
    Person("the farmer", "शेतकरी", "शेतकऱ्या", "m"),
    Person("the children", "मुले", "मुलां", "n", en_plural=True, plural=True),
    Person("the girls", "मुली", "मुलीं", "f", en_plural=True, plural=True),
    Person("the students", "विद्यार्थी", "विद्यार्थ्यां", "m", en_plural=True, plural=True),
)
PROFESSIONS = (
    Profession("boy", "", ("मुलगा", "", "", ""), f"good small {CHARACTER}"),
    Profession("girl", "girls", ("", "मुलगी", "", "मुली"), f"good small beautiful {CHARACTER}"),
    Profession("man", "", ("माणूस", "", "", ""), f"good young {CHARACTER}"),
    Profession("woman", "", ("", "बाई", "", ""), f"good young {CHARACTER}"),
    Profession(
        "student",
        "students",
        ("विद्यार्थी", "विद्यार्थिनी", "विद्यार्थी", "विद्यार्थिनी"),
        "good new clever honest lazy poor",
    ),
    Profession(
        "teacher",
        "teachers",
        ("शिक्षक", "शिक्षिका", "शिक्षक", "शिक्षिका"),
        "good new young honest kind",
    ),
    Profession(
        "doctor", "doctors", ("डॉक्टर", "डॉक्टर", "डॉक्टर", "डॉक्टर"), "good new young kind famous"
    ),
    Profession("singer", "singers", ("गायक", "गायिका", "गायक", "गायिका"), "good young famous"),
    Profession("writer", "writers", ("लेखक", "लेखिका", "लेखक", "लेखिका"), "good young famous"),
    Profession("friend", "friends", ("मित्र", "मैत्रीण", "मित्र", "मैत्रिणी"), "good new clever kind"),
    Profession("farmer", "", ("शेतकरी", "", "", ""), "good young honest poor rich"),
)
RELATIONS = (
    ("brother", "भाऊ", "m"),
    ("sister", "बहीण", "f"),
    ("friend", "मित्र", "m"),
    ("friend", "मैत्रीण", "f"),
    ("son", "मुलगा", "m"),
    ("daughter", "मुलगी", "f"),
)

THINGS = {
    thing.en: thing
    for thing in (
        Thing("book", "books", "पुस्तक", "पुस्तके", "n", "good new old big small expensive cheap"),
        Thing("letter", "letters", "पत्र", "पत्रे", "n", "good old new"),
        Thing("story", "stories", "गोष्ट", "गोष्टी", "f", "good new old beautiful"),
        Thing("song", "songs", "गाणे", "गाणी", "n", "good new old beautiful"),
        Thing("picture", "pictures", "चित्र", "चित्रे", "n", "good new old beautiful big small"),
        Thing("film", "films", "चित्रपट", "चित्रपट", "m", "good new old"),
        Thing("question", "questions", "प्रश्न", "प्रश्न", "m", "good easy difficult"),
        Thing("answer", "answers", "उत्तर", "उत्तरे", "n", "good easy"),
        Thing("lesson", "lessons", "धडा", "धडे", "m", "easy difficult new"),
        Thing("house", "houses", "घर", "घरे", "n", "good new old big small beautiful clean"),
        Thing("room", "rooms", "खोली", "खोल्या", "f", "good big small clean"),
        Thing("door", "doors", "दरवाजा", "दरवाजे", "m", "big small old white green"),
        Thing("window", "windows", "खिडकी", "खिडक्या", "f", "big small old white green"),
        Thing("chair", "chairs", "खुर्ची", "खुर्च्या", "f", "good new old big small red black"),
        Thing("bag", "bags", "पिशवी", "पिशव्या", "f", "new old big small red white yellow"),
        Thing("car", "cars", "गाडी", "गाड्या", "f", "good new old big small red white black"),
        Thing("road", "roads", "रस्ता", "रस्ते", "m", "good new long clean"),
        Thing("river", "rivers", "नदी", "नद्या", "f", "big beautiful long clean"),
        Thing("city", "cities", "शहर", "शहरे", "n", "big beautiful old clean"),
        Thing("garden", "gardens", "बाग", "बागा", "f", "big small beautiful"),
        Thing("temple", "temples", "मंदिर", "मंदिरे", "n", "big small beautiful old new"),
        Thing("shop", "shops", "दुकान", "दुकाने", "n", "good new big small"),
        Thing("tree", "trees", "झाड", "झाडे", "n", "big small old tall green"),
        Thing("flower", "flowers", "फूल", "फुले", "n", "beautiful small red white yellow"),
        Thing("mango", "mangoes", "आंबा", "आंबे", "m", "good sweet big small yellow"),
        Thing("apple", "apples", "सफरचंद", "सफरचंदे", "n", "good sweet big small red"),
        Thing("horse", "horses", "घोडा", "घोडे", "m", "good big small white black"),
        Thing("dog", "dogs", "कुत्रा", "कुत्रे", "m", "good big small white black"),
        Thing("bird", "birds", "पक्षी", "पक्षी", "m", "beautiful small big white black"),
        Thing("tea", "", "चहा", "", "m", "good sweet hot"),
        Thing("coffee", "", "कॉफी", "", "f", "good hot"),
        Thing("milk", "", "दूध", "", "n", "good hot cold"),
        Thing("water", "", "पाणी", "", "n", "clean hot cold"),
        Thing("rice", "", "भात", "", "m", "good hot white"),
        Thing("bread", "", "पाव", "", "m", "good"),
    )
}
MASSES = ("tea", "coffee", "milk", "water", "rice", "bread")
PORTABLE = ("book", "letter", "picture", "bag", "flower", "mango", "apple")
OWNED = (
    "book",
    "picture",
    "bag",
    "chair",
    "house",
    "room",
    "car",
    "garden",
    "shop",
    "horse",
    "dog",
)
DAILY = ("flower", "mango", "apple", "milk", "bread")  # what is bought and sold every day
LIKED = (
    "tea",
    "coffee",
    "milk",
    "rice",
    "bread",
    "mango",
    "apple",
    "book",
    "film",
    "song",
    "story",
)

VERBS = {
    verb.en: verb
    for verb in (
        Verb("read", "reads", "read", "reading", "वाच", "वाचत", "वाच", "book letter story lesson"),
        Verb(
            "write", "writes", "wrote", "writing", "लिहि", "लिहीत", "लिहि", "book letter story song"
        ),
        Verb("eat", "eats", "ate", "eating", "खा", "खात", "खाल्", "mango apple rice bread"),
        Verb("drink", "drinks", "", "drinking", "पि", "पीत", "", "tea coffee milk water"),
        Verb("watch", "watches", "watched", "watching", "पाह", "पाहत", "पाहि", "film"),
        Verb("see", "", "saw", "", "", "", "पाहि", "bird horse house river temple dog car"),
        Verb(
            "buy",
            "buys",
            "bought",
            "buying",
            "विकत घे",
            "विकत घेत",
            "विकत घेत",
            "book house car bag chair flower mango apple picture horse milk bread",
        ),
        Verb(
            "sell",
            "sells",
            "sold",
            "selling",
            "विक",
            "विकत",
            "विक",
            "book flower mango apple picture milk chair bag house car",
        ),
        Verb(
            "bring",
            "brings",
            "brought",
            "bringing",
            "आण",
            "आणत",
            "आण",
            "book flower mango tea milk",
        ),
        Verb("wash", "washes", "washed", "washing", "धु", "धूत", "धुत", "car bag mango apple"),
        Verb("open", "opens", "opened", "opening", "उघड", "उघडत", "उघड", "door window book bag"),
        Verb("close", "closes", "closed", "closing", "बंद कर", "बंद करत", "बंद के", "door window"),
        Verb(
            "clean",
            "cleans",
            "cleaned",
            "cleaning",
            "स्वच्छ कर",
            "स्वच्छ करत",
            "स्वच्छ के",
            "room house window chair",
        ),
        Verb("draw", "draws", "drew", "drawing", "काढ", "काढत", "काढ", "picture"),
        Verb("sing", "sings", "sang", "singing", "गा", "गात", "गाय", "song"),
        Verb("tell", "tells", "told", "telling", "सांग", "सांगत", "सांगित", "story"),
    )
}

MOTIONS = (  # agree with their subject in the past too
    (Verb("go", "goes", "went", "going", "जा", "जात", "गे", ""), "to"),
    (Verb("come", "comes", "came", "coming", "ये", "येत", "आ", ""), "home"),
    (Verb("play", "plays", "played", "playing", "खेळ", "खेळत", "खेळ", ""), "outdoors"),
    (Verb("run", "runs", "ran", "running", "धाव", "धावत", "धाव", ""), "outdoors"),
    (Verb("sit", "sits", "sat", "", "बस", "बसत", "बस", ""), "seat"),
    (Verb("sleep", "sleeps", "slept", "", "झोप", "झोपत", "झोप", ""), "bed"),
    (Verb("live", "lives", "", "", "राह", "राहत", "", ""), "town"),
    (Verb("work", "works", "", "working", "काम कर", "काम करत", "", ""), "work"),
    (Verb("study", "studies", "", "studying", "अभ्यास कर", "अभ्यास करत", "", ""), "study"),
)
WHEREABOUTS = {
    "to": (
        ("to school", "शाळेत"),
        ("to the market", "बाजारात"),
        ("to the temple", "मंदिरात"),
        ("to Pune", "पुण्याला"),
        ("to Mumbai", "मुंबईला"),
        ("to Delhi", "दिल्लीला"),
        ("home", "घरी"),
    ),
    "home": (("home", "घरी"), ("to school", "शाळेत"), ("to Mumbai", "मुंबईला")),
    "outdoors": (("in the garden", "बागेत"), ("on the road", "रस्त्यावर")),
    "seat": (
        ("on the chair", "खुर्चीवर"),
        ("under the tree", "झाडाखाली"),
        ("in the garden", "बागेत"),
        ("near the window", "खिडकीजवळ"),
    ),
    "bed": (("in the room", "खोलीत"), ("under the tree", "झाडाखाली"), ("at home", "घरी")),
    "town": (
        ("in Pune", "पुण्यात"),
        ("in Mumbai", "मुंबईत"),
        ("in Delhi", "दिल्लीत"),
        ("in the village", "गावात"),
        ("near the river", "नदीजवळ"),
    ),
    "work": (
        ("in the shop", "दुकानात"),
        ("in the field", "शेतात"),
        ("in Pune", "पुण्यात"),
        ("at home", "घरी"),
    ),
    "study": (("at home", "घरी"), ("in the room", "खोलीत"), ("at school", "शाळेत")),
    "thing": (
        ("on the chair", "खुर्चीवर"),
        ("on the table", "टेबलावर"),
        ("in the room", "खोलीत"),
        ("in the house", "घरात"),
        ("in the shop", "दुकानात"),
        ("under the tree", "झाडाखाली"),
        ("near the window", "खिडकीजवळ"),
    ),
    "person": (
        ("at home", "घरी"),
        ("at school", "शाळेत"),
        ("in the garden", "बागेत"),
        ("in the market", "बाजारात"),
        ("in Pune", "पुण्यात"),
        ("near the river", "नदीजवळ"),
    ),
}
DEFINITE_OBJECTS = ("wash", "open", "close", "clean")  # "the door", where others take "a book"
NUMBERS = (("two", "दोन"), ("three", "तीन"), ("four", "चार"), ("five", "पाच"), ("ten", "दहा"))
ANY_TIMES = (
    ("in the morning", "सकाळी"),
    ("in the evening", "संध्याकाळी"),
    ("on Monday", "सोमवारी"),
    ("on Sunday", "रविवारी"),
)
HABITUAL_TIMES = (("every day", "रोज"), *ANY_TIMES[:2])
PAST_TIMES = (("yesterday", "काल"), ("last week", "गेल्या आठवड्यात"), *ANY_TIMES[2:])
