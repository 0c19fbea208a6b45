"""Embeddings that can also be the projection to the vocabulary."""

from torch import Tensor, nn


class ScaledEmbedding(nn.Embedding):
    """Ids [...] -> `sqrt(E) * row`: [..., E] (Vaswani et al. 2017, section 3.4).

    Rows begin with variance 1 / E, as a projection wants them, and enter the LSTM with variance 1:
    unscaled, they are so small at first that learning starts several times slower.
    """

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:  # where torch would load its whole compiler, for two seconds
            nn.init.normal_(self.weight, std=self.embedding_dim**-0.5)

    def forward(self, input: Tensor) -> Tensor:
        scaled: Tensor = super().forward(input) * self.embedding_dim**0.5
        return scaled
