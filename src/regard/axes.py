"""The names of the axes, in one place, so that a shape reads the same in every file.

    batch        sequences side by side
    rows         sequences being decoded: batch × beams, fewer as they finish
    tokens       positions of one sequence; `queries` and `keys` where two sequences meet
    heads        attention heads; `kv_heads` where several query heads share one key/value head
    width        a token's vector; `head_width` one head's part of it; `key_width` and `value_width` a key's and a
                 value's, if they differ; `compared` that of queries and keys once a similarity has mapped them
    vocab        entries of the vocabulary

Attention tensors are `[batch, heads, tokens, head_width]`, ids `[batch, tokens]`, logits `[batch, tokens, vocab]`.
"""

from jaxtyping import Float, Int
from torch import Tensor

Ids = Int[Tensor, "batch tokens"]
Lengths = Int[Tensor, "batch"]
Hidden = Float[Tensor, "batch tokens width"]
Logits = Float[Tensor, "batch tokens vocab"]

Query = Float[Tensor, "batch heads queries head_width"]
Key = Float[Tensor, "batch kv_heads keys key_width"]
Value = Float[Tensor, "batch kv_heads keys value_width"]
ComparedQuery = Float[Tensor, "batch heads queries compared"]
ComparedKey = Float[Tensor, "batch kv_heads keys compared"]
Scores = Float[Tensor, "batch heads queries keys"]
Weights = Float[Tensor, "batch heads queries keys"]
Attended = Float[Tensor, "batch heads queries value_width"]

RowIds = Int[Tensor, "rows"]
RowLogits = Float[Tensor, "rows vocab"]
