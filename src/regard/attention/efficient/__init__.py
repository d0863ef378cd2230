"""Attention otherwise than exactly, most of it in less than n² steps: one paper, one file, each a registered mechanism.

Importing this registers all.
"""

import regard.attention.efficient.bigbird
import regard.attention.efficient.differential
import regard.attention.efficient.gated_deltanet
import regard.attention.efficient.gated_linear
import regard.attention.efficient.gated_softmax
import regard.attention.efficient.linear
import regard.attention.efficient.linformer
import regard.attention.efficient.longformer_layer
import regard.attention.efficient.nystrom
import regard.attention.efficient.performer
import regard.attention.efficient.reformer
import regard.attention.efficient.sinks  # noqa: F401
