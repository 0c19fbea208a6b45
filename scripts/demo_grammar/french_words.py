"""The words of the English-French grammar; every form is written out, none is derived by rule.

Every h- here is mute (it elides): "Hongrie", "huit" or "haut" may not be added as they are.
"""

from typing import NamedTuple


class Noun(NamedTuple):
    """A noun of one fixed gender ("m" or "f") that has one rendering."""

    en: str
    en_plural: str
    fr: str
    fr_plural: str
    gender: str


class Adjective(NamedTuple):
    """An adjective; `forms` are masculine, feminine, masculine plural and feminine plural.

    `before`: it stands before the noun; `liaison`: its masculine before a vowel, where it differs.
    """

    en: str
    forms: tuple[str, ...]
    before: bool = False
    liaison: str = ""


class Verb(NamedTuple):
    """A verb with `avoir`; `present` holds je, il, nous, ils; `future` the stem before -ai, -a."""

    en: str
    en_third: str
    en_past: str
    en_ing: str
    present: tuple[str, ...]
    participle: str  # none ends in -s, so feminine and plural only add -e and -s
    future: str


class Country(NamedTuple):
    """A country: with its article, after "in" or "to", and after "from"."""

    en: str
    fr: str
    to: str
    origin: str
    plural: bool = False


def nouns(table: str) -> tuple[Noun, ...]:
    return tuple(Noun(*line.split()) for line in table.strip().splitlines())


def adjectives(table: str, before: bool = False) -> dict[str, Adjective]:
    """Lines of English, four forms and, where there is one, the form before a vowel; by English."""
    rows = (line.split() for line in table.strip().splitlines())
    return {r[0]: Adjective(r[0], tuple(r[1:5]), before, "".join(r[5:])) for r in rows}


def verbs(table: str) -> dict[str, Verb]:
    """Lines of four English forms, four of the present, participle and future stem; by English."""
    rows = (line.split() for line in table.strip().splitlines())
    parsed = (Verb(r[0], r[1], r[2], r[3], tuple(r[4:8]), r[8], r[9]) for r in rows)
    return {verb.en: verb for verb in parsed}


BEFORE = adjectives(
    """
    small petit petite petits petites
    big grand grande grands grandes
    good bon bonne bons bonnes
    bad mauvais mauvaise mauvais mauvaises
    long long longue longs longues
    young jeune jeune jeunes jeunes
    beautiful beau belle beaux belles bel
    new nouveau nouvelle nouveaux nouvelles nouvel
    old vieux vieille vieux vieilles vieil
    """,
    before=True,
)
COLOURS = adjectives(
    """
    red rouge rouge rouges rouges
    yellow jaune jaune jaunes jaunes
    blue bleu bleue bleus bleues
    green vert verte verts vertes
    white blanc blanche blancs blanches
    black noir noire noirs noires
    grey gris grise gris grises
    """
)
NATIONALITIES = adjectives(
    """
    European européen européenne européens européennes
    French français française français françaises
    German allemand allemande allemands allemandes
    Italian italien italienne italiens italiennes
    Spanish espagnol espagnole espagnols espagnoles
    Portuguese portugais portugaise portugais portugaises
    Greek grec grecque grecs grecques
    Belgian belge belge belges belges
    Austrian autrichien autrichienne autrichiens autrichiennes
    Norwegian norvégien norvégienne norvégiens norvégiennes
    Swedish suédois suédoise suédois suédoises
    Japanese japonais japonaise japonais japonaises
    American américain américaine américains américaines
    """
)
RELATIONAL = adjectives(
    """
    economic économique économique économiques économiques
    political politique politique politiques politiques
    scientific scientifique scientifique scientifiques scientifiques
    monetary monétaire monétaire monétaires monétaires
    agricultural agricole agricole agricoles agricoles
    social social sociale sociaux sociales
    commercial commercial commerciale commerciaux commerciales
    industrial industriel industrielle industriels industrielles
    cultural culturel culturelle culturels culturelles
    financial financier financière financiers financières
    """
)
QUALITIES = adjectives(
    """
    famous célèbre célèbre célèbres célèbres
    modern moderne moderne modernes modernes
    interesting intéressant intéressante intéressants intéressantes
    sad triste triste tristes tristes
    funny drôle drôle drôles drôles
    rich riche riche riches riches
    happy heureux heureuse heureux heureuses
    tired fatigué fatiguée fatigués fatiguées
    ill malade malade malades malades
    ready prêt prête prêts prêtes
    expensive cher chère chers chères
    comfortable confortable confortable confortables confortables
    empty vide vide vides vides
    open ouvert ouverte ouverts ouvertes
    closed fermé fermée fermés fermées
    important important importante importants importantes
    necessary nécessaire nécessaire nécessaires nécessaires
    useful utile utile utiles utiles
    clear clair claire clairs claires
    difficult difficile difficile difficiles difficiles
    international international internationale internationaux internationales
    """
)

PEOPLE = nouns(
    """
    man men homme hommes m
    woman women femme femmes f
    boy boys garçon garçons m
    girl girls fille filles f
    king kings roi rois m
    queen queens reine reines f
    actor actors acteur acteurs m
    actress actresses actrice actrices f
    waiter waiters serveur serveurs m
    waitress waitresses serveuse serveuses f
    """
)
FAMILY = nouns(
    """
    father fathers père pères m
    mother mothers mère mères f
    brother brothers frère frères m
    sister sisters sœur sœurs f
    uncle uncles oncle oncles m
    aunt aunts tante tantes f
    son sons fils fils m
    grandmother grandmothers grand-mère grands-mères f
    """
)
ANIMALS = nouns(
    """
    dog dogs chien chiens m
    cat cats chat chats m
    horse horses cheval chevaux m
    bird birds oiseau oiseaux m
    cow cows vache vaches f
    rabbit rabbits lapin lapins m
    """
)
BUILDINGS = nouns(
    """
    house houses maison maisons f
    castle castles château châteaux m
    hotel hotels hôtel hôtels m
    church churches église églises f
    school schools école écoles f
    museum museums musée musées m
    hospital hospitals hôpital hôpitaux m
    theatre theatres théâtre théâtres m
    bridge bridges pont ponts m
    library libraries bibliothèque bibliothèques f
    garden gardens jardin jardins m
    village villages village villages m
    """
)
THINGS = nouns(
    """
    car cars voiture voitures f
    bicycle bicycles vélo vélos m
    boat boats bateau bateaux m
    bag bags sac sacs m
    box boxes boîte boîtes f
    hat hats chapeau chapeaux m
    coat coats manteau manteaux m
    shirt shirts chemise chemises f
    dress dresses robe robes f
    umbrella umbrellas parapluie parapluies m
    chair chairs chaise chaises f
    table tables table tables f
    lamp lamps lampe lampes f
    armchair armchairs fauteuil fauteuils m
    computer computers ordinateur ordinateurs m
    """
)
WORKS = nouns(
    """
    book books livre livres m
    letter letters lettre lettres f
    story stories histoire histoires f
    novel novels roman romans m
    poem poems poème poèmes m
    song songs chanson chansons f
    film films film films m
    """
)
OPENINGS = nouns(
    """
    door doors porte portes f
    window windows fenêtre fenêtres f
    suitcase suitcases valise valises f
    shop shops magasin magasins m
    """
)
PLANTS = nouns(
    """
    tree trees arbre arbres m
    flower flowers fleur fleurs f
    apple apples pomme pommes f
    """
)
DOCUMENTS = nouns(
    """
    agreement agreements accord accords m
    treaty treaties traité traités m
    convention conventions convention conventions f
    declaration declarations déclaration déclarations f
    report reports rapport rapports m
    law laws loi lois f
    decision decisions décision décisions f
    """
)
MEASURES = nouns(
    """
    policy policies politique politiques f
    crisis crises crise crises f
    system systems système systèmes m
    programme programmes programme programmes m
    reform reforms réforme réformes f
    project projects projet projets m
    market markets marché marchés m
    institute institutes institut instituts m
    area areas zone zones f
    sector sectors secteur secteurs m
    """
)

_BY_NAME = {
    noun.en: noun
    for group in (PEOPLE, FAMILY, ANIMALS, BUILDINGS, THINGS, WORKS, OPENINGS, PLANTS)
    for noun in group
}


def named(names: str) -> tuple[Noun, ...]:
    """The everyday nouns with these English names, separated by spaces."""
    return tuple(_BY_NAME[name] for name in names.split())


PUBLIC = named("hotel church museum hospital theatre bridge library village")  # never "my"


VERBS = verbs(
    """
    buy buys bought buying achète achète achetons achètent acheté achèter
    sell sells sold selling vends vend vendons vendent vendu vendr
    read reads read reading lis lit lisons lisent lu lir
    write writes wrote writing écris écrit écrivons écrivent écrit écrir
    find finds found finding trouve trouve trouvons trouvent trouvé trouver
    lose loses lost losing perds perd perdons perdent perdu perdr
    visit visits visited visiting visite visite visitons visitent visité visiter
    admire admires admired admiring admire admire admirons admirent admiré admirer
    wash washes washed washing lave lave lavons lavent lavé laver
    repair repairs repaired repairing répare répare réparons réparent réparé réparer
    open opens opened opening ouvre ouvre ouvrons ouvrent ouvert ouvrir
    close closes closed closing ferme ferme fermons ferment fermé fermer
    build builds built building construis construit construisons construisent construit construir
    give gives gave giving donne donne donnons donnent donné donner
    show shows showed showing montre montre montrons montrent montré montrer
    sing sings sang singing chante chante chantons chantent chanté chanter
    sign signs signed signing signe signe signons signent signé signer
    publish publishes published publishing publie publie publions publient publié publier
    adopt adopts adopted adopting adopte adopte adoptons adoptent adopté adopter
    approve approves approved approving approuve approuve approuvons approuvent approuvé approuver
    reject rejects rejected rejecting rejette rejette rejetons rejettent rejeté rejetter
    finance finances financed financing finance finance finançons financent financé financer
    study studies studied studying étudie étudie étudions étudient étudié étudier
    support supports supported supporting soutiens soutient soutenons soutiennent soutenu soutiendr
    prepare prepares prepared preparing prépare prépare préparons préparent préparé préparer
    drink drinks drank drinking bois boit buvons boivent bu boir
    eat eats ate eating mange mange mangeons mangent mangé manger
    like likes liked liking aime aime aimons aiment aimé aimer
    live lives lived living habite habite habitons habitent habité habiter
    work works worked working travaille travaille travaillons travaillent travaillé travailler
    """
)

COUNTRIES = (
    Country("France", "la France", "en France", "de France"),
    Country("Germany", "l'Allemagne", "en Allemagne", "d'Allemagne"),
    Country("Italy", "l'Italie", "en Italie", "d'Italie"),
    Country("Spain", "l'Espagne", "en Espagne", "d'Espagne"),
    Country("Austria", "l'Autriche", "en Autriche", "d'Autriche"),
    Country("Norway", "la Norvège", "en Norvège", "de Norvège"),
    Country("Sweden", "la Suède", "en Suède", "de Suède"),
    Country("Belgium", "la Belgique", "en Belgique", "de Belgique"),
    Country("Portugal", "le Portugal", "au Portugal", "du Portugal"),
    Country("Japan", "le Japon", "au Japon", "du Japon"),
    Country("Canada", "le Canada", "au Canada", "du Canada"),
    Country("the Netherlands", "les Pays-Bas", "aux Pays-Bas", "des Pays-Bas", plural=True),
)
CITIES = (
    ("Paris", "Paris"),
    ("Rome", "Rome"),
    ("Madrid", "Madrid"),
    ("Berlin", "Berlin"),
    ("London", "Londres"),
    ("Brussels", "Bruxelles"),
    ("Vienna", "Vienne"),
    ("Athens", "Athènes"),
    ("Lisbon", "Lisbonne"),
    ("Geneva", "Genève"),
)
NAMES = (
    ("Paul", "m"),
    ("Pierre", "m"),
    ("Louis", "m"),
    ("Antoine", "m"),
    ("Marie", "f"),
    ("Claire", "f"),
    ("Anne", "f"),
    ("Alice", "f"),
)
MONTHS = (
    ("January", "janvier"),
    ("February", "février"),
    ("March", "mars"),
    ("April", "avril"),
    ("May", "mai"),
    ("June", "juin"),
    ("July", "juillet"),
    ("August", "août"),
    ("September", "septembre"),
    ("October", "octobre"),
    ("November", "novembre"),
    ("December", "décembre"),
)
WEEKDAYS = (
    ("Monday", "lundi"),
    ("Tuesday", "mardi"),
    ("Wednesday", "mercredi"),
    ("Thursday", "jeudi"),
    ("Friday", "vendredi"),
    ("Saturday", "samedi"),
    ("Sunday", "dimanche"),
)
NUMBERS = (
    ("two", "deux"),
    ("three", "trois"),
    ("four", "quatre"),
    ("five", "cinq"),
    ("six", "six"),
    ("ten", "dix"),
)
TOPICS = (
    ("the European single market", "le marché unique européen"),
    ("the common agricultural policy", "la politique agricole commune"),
    ("the European monetary union", "l'union monétaire européenne"),
    ("the international monetary system", "le système monétaire international"),
    ("world trade", "le commerce mondial"),
    ("foreign trade", "le commerce extérieur"),
    ("climate change", "le changement climatique"),
    ("public health", "la santé publique"),
    ("nuclear energy", "l'énergie nucléaire"),
    ("higher education", "l'enseignement supérieur"),
    ("air transport", "le transport aérien"),
    ("road safety", "la sécurité routière"),
    ("human rights", "les droits de l'homme"),
)
BODIES = (
    ("the European Commission", "la Commission européenne"),
    ("the European Parliament", "le Parlement européen"),
    ("the European Council", "le Conseil européen"),
    ("the National Assembly", "l'Assemblée nationale"),
    ("the Supreme Court", "la Cour suprême"),
    ("the Security Council", "le Conseil de sécurité"),
)
FOODS = (
    ("drink", "water", "l'eau"),
    ("drink", "wine", "le vin"),
    ("drink", "milk", "le lait"),
    ("drink", "coffee", "le café"),
    ("drink", "tea", "le thé"),
    ("drink", "beer", "la bière"),
    ("eat", "bread", "le pain"),
    ("eat", "cheese", "le fromage"),
    ("eat", "fish", "le poisson"),
    ("eat", "rice", "le riz"),
    ("eat", "soup", "la soupe"),
    ("eat", "meat", "la viande"),
    ("eat", "jam", "la confiture"),
)
