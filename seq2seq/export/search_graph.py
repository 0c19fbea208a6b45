"""Graph of the best continuations in beam search, for clients without a fast top-k."""

from seq2seq.export.graph import INT, Graph


def topk_graph() -> Graph:
    """Return the graph `log_probs [B K, V], scores [B, K], count [1] -> best, places`.

    `best` [B, count] are the largest sums of a hypothesis's score and a token's log-probability,
    best first; `places` [B, count] are `k * V + token`.
    """
    graph = Graph("topk")
    log_probs = graph.input("log_probs", ["rows", "vocabulary"])
    scores = graph.input("scores", ["batch", "beam"])
    count = graph.input("count", [1], INT)
    batch, beam = graph.size(scores, 0), graph.size(scores, 1)
    by_sentence = graph.reshape(log_probs, batch, beam, -1)
    totals = graph.op("Add", by_sentence, graph.unsqueeze(scores, 2))  # [B, K, V]
    best, places = graph.ops("TopK", graph.reshape(totals, batch, -1), count, results=2)
    graph.output(best, "best", ["batch", "count"])
    graph.output(places, "places", ["batch", "count"], INT)
    return graph
