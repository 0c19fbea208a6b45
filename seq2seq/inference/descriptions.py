"""Descriptions of the options of search, for the command line and the server.

The module imports nothing, so that help is printed at once.
"""

DIVERSITY = 0.5  # default penalty
DESCRIPTIONS = {
    "glossary": "source and target phrases: where a line has the source phrase, its translation "
    "contains the target phrase",
    "forbidden": "no translation contains these words and phrases",
    "sampling": "draw translations, in place of beam search",
    "samples": "translations to draw of each line, in place of beam search",
    "temperature": "divides log-probabilities",
    "top_k": "draw from the K most probable tokens",
    "top_p": "draw from the most probable tokens of total probability P",
    "seed": "seed of the draws; a line is drawn alike in any batch",
    "groups": "diverse beam search: divide the beam into G groups, of which each avoids the tokens "
    "of those before it",
    "diversity": "with groups: penalty in nats for such a token",
    "mbr": "choose, of the hypotheses of the beam or the samples, the one with the highest "
    "expected chrf or bleu (minimum Bayes risk)",
    "head_attention": "also return the attention weights of each head",
    "written_names": "write a name whose spelling is not certain in its source script, too",
}
